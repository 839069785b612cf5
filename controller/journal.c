/* The journal: one JSON line a decision, as docs/reference/runs.md describes, and all
 * inputs. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/numerals.h"
#include "controller/loop.h"

struct weir_journal {
  int file;
  char *path;
  off_t limit;   /* of a part, in bytes; 0: there is one part */
  uint64_t lost; /* decisions that could not be written, since one last could */
};

/* Room beyond the end, for a disk that others fill: for some hundred decisions.  Without it, or on
 * a file system that cannot, the journal goes as far as there is room. */
static void reserve(const weir_journal *journal, off_t end) {
  enum { AHEAD = 4 << 20 };
  (void)fallocate(journal->file, FALLOC_FL_KEEP_SIZE, end, AHEAD);
}

/* --- parts: PATH is the newest, then PATH.1 ... ---------------------------------------------- */

/* Part 0 is the path itself.  False: the name is too long. */
static bool part_name(char name[PATH_MAX], const char *path, int part) {
  const int length =
      part ? snprintf(name, PATH_MAX, "%s.%d", path, part) : snprintf(name, PATH_MAX, "%s", path);
  return length > 0 && length < PATH_MAX;
}

/* A pipe that nobody reads is not waited for. */
static int open_part(const char *path, bool goes_on) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (goes_on ? 0 : O_TRUNC);
  const int file = open(path, flags | O_NONBLOCK, 0666);
  if (file >= 0) (void)fcntl(file, F_SETFL, O_APPEND);
  return file;
}

/* Those of an earlier job. */
static void remove_parts(const char *path) {
  char name[PATH_MAX];
  for (int part = 1; part < WEIR_JOURNAL_PARTS; part++)
    if (part_name(name, path, part)) (void)unlink(name);
}

static void close_part(int file) {
  const off_t end = lseek(file, 0, SEEK_END);
  if (ftruncate(file, end) != 0) errno = 0; /* what was reserved stays so */
  (void)close(file);
}

/* The newest part is full: the oldest goes, and a new one begins.  Where that cannot be, the full
 * one grows on. */
static void turn_over(weir_journal *journal) {
  char from[PATH_MAX], to[PATH_MAX];
  for (int part = WEIR_JOURNAL_PARTS - 1; part > 0; part--)
    if (!part_name(from, journal->path, part - 1) || !part_name(to, journal->path, part) ||
        (rename(from, to) != 0 && errno != ENOENT))
      return;
  const int file = open_part(journal->path, true);
  if (file < 0) return;
  close_part(journal->file);
  journal->file = file;
}

/* --- a disk that is full ---------------------------------------------------------------------- */

/* Training goes on without its journal, so nobody would hear of it otherwise. */
static void note_lost(weir_journal *journal) {
  if (journal->lost++ == 0)
    (void)fprintf(stderr, "weir: %s: %s; decisions are missing from here on\n", journal->path,
                  weir_last_error());
}

static void tell_lost(weir_journal *journal) {
  if (journal->lost > 0)
    (void)fprintf(stderr, "weir: %s: %" PRIu64 " decisions are missing\n", journal->path,
                  journal->lost);
  journal->lost = 0;
}

weir_status weir_journal_open(weir_journal **out, const char *path, uint64_t bytes, bool goes_on) {
  *out = NULL;
  weir_journal *journal = calloc(1, sizeof *journal);
  if (!journal || !(journal->path = strdup(path))) {
    free(journal);
    return weir_fail(WEIR_E_NOMEM, "no memory for the journal");
  }
  journal->limit = (off_t)(bytes / WEIR_JOURNAL_PARTS);
  journal->file = open_part(path, goes_on);
  if (journal->file < 0) {
    const int error = errno;
    free(journal->path);
    free(journal);
    return weir_fail(WEIR_E_IO, "journal %s cannot be written: %s", path, strerror(error));
  }
  if (!goes_on) remove_parts(path);
  reserve(journal, lseek(journal->file, 0, SEEK_END));
  *out = journal;
  return WEIR_OK;
}

void weir_journal_close(weir_journal *journal) {
  if (!journal) return;
  tell_lost(journal);
  close_part(journal->file);
  free(journal->path);
  free(journal);
}

weir_status weir_journal_keep(weir_journal *journal, uint64_t *bytes) {
  const off_t end = lseek(journal->file, 0, SEEK_END);
  if (end < 0 || (fdatasync(journal->file) != 0 && errno != EINVAL)) /* EINVAL: it is no disk's */
    return weir_fail(WEIR_E_IO, "journal %s cannot be kept: %s", journal->path, strerror(errno));
  *bytes = (uint64_t)end;
  return WEIR_OK;
}

weir_status weir_journal_cut(weir_journal *journal, uint64_t bytes) {
  const off_t end = lseek(journal->file, 0, SEEK_END);
  if (journal->limit > 0 || end < 0 || (uint64_t)end <= bytes) return WEIR_OK;
  if (ftruncate(journal->file, (off_t)bytes) == 0) return WEIR_OK;
  return weir_fail(WEIR_E_IO, "journal %s cannot be cut: %s", journal->path, strerror(errno));
}

/* --- a small emitter: names are ours and need no escaping; texts are escaped ---------------- */

static void put_name(FILE *f, const char *name) { fprintf(f, "\"%s\":", name); }

static void put_double(FILE *f, double value) {
  if (isfinite(value))
    fprintf(f, "%.17g", value); /* enough to read the same double back */
  else
    fputs("null", f);
}

/* Bytes of the letter that a text begins with, by Unicode's table of well-formed ones; 0: it is no
 * UTF-8. */
static size_t letter_of(const char *text) {
  const unsigned char *p = (const unsigned char *)text;
  const size_t bytes = p[0] < 0x80   ? 1
                       : p[0] < 0xC2 ? 0
                       : p[0] < 0xE0 ? 2
                       : p[0] < 0xF0 ? 3
                       : p[0] < 0xF5 ? 4
                                     : 0;
  if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
      (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
    return 0;
  for (size_t i = 1; i < bytes; i++)
    if ((p[i] & 0xC0) != 0x80) return 0;
  return bytes;
}

/* A tensor's name may be any bytes; what reads the line takes UTF-8 alone. */
static void put_text(FILE *f, const char *text) {
  fputc('"', f);
  while (*text) {
    const size_t bytes = letter_of(text);
    if (*text == '"' || *text == '\\') fputc('\\', f);
    if (bytes == 0)
      fputs("\\ufffd", f);
    else if ((unsigned char)*text < 0x20)
      fprintf(f, "\\u%04x", (unsigned)*text);
    else
      (void)fwrite(text, 1, bytes, f);
    text += bytes > 0 ? bytes : 1;
  }
  fputc('"', f);
}

static void put_number(FILE *f, const char *name, double value) {
  put_name(f, name);
  put_double(f, value);
  fputc(',', f);
}

static void put_candidate(FILE *f, const weir_candidate *c) {
  char text[WEIR_PLAN_TEXT_MAX], collective[WEIR_COLLECTIVE_TEXT_MAX];
  weir_plan_format(&c->plan, text);
  weir_plan_collective(&c->plan, collective);
  fputs("{\"plan\":", f);
  put_text(f, text);
  fprintf(f, ",\"codec\":\"%s\",\"collective\":\"%s\",\"wire\":\"%s\",",
          weir_codec_name(c->plan.codec), collective, weir_wire_name(c->plan.wire));
  put_number(f, "cr", c->plan.cr);
  put_number(f, "t_comp_ms", 1e3 * c->compress_s);
  put_number(f, "t_comm_ms", 1e3 * c->comm_s);
  put_number(f, "gain", c->gain);
  put_name(f, "progress_per_s");
  put_double(f, c->progress_per_s);
  fputc('}', f);
}

static void put_candidates(FILE *f, const char *name, const weir_candidate *c, size_t n) {
  put_name(f, name);
  fputc('[', f);
  for (size_t i = 0; i < n; i++) {
    if (i) fputc(',', f);
    put_candidate(f, &c[i]);
  }
  fputs("],", f);
}

static void put_field(FILE *f, const weir_field *field, const void *at) {
  if (field->kind == WEIR_FIELD_U8)
    fprintf(f, "%u", *(const uint8_t *)at);
  else if (field->kind == WEIR_FIELD_U32)
    fprintf(f, "%" PRIu32, *(const uint32_t *)at);
  else if (field->kind == WEIR_FIELD_U64)
    fprintf(f, "%" PRIu64, *(const uint64_t *)at);
  else
    put_double(f, *(const double *)at);
}

static void put_input(FILE *f, const weir_decision_input *in) {
  put_name(f, "input");
  for (size_t i = 0; i < weir_field_count; i++) {
    const weir_field *field = &weir_fields[i];
    const char *at = (const char *)in + field->offset;
    fputc(i ? ',' : '{', f);
    put_name(f, field->name);
    if (field->count == 0) {
      put_field(f, field, at);
      continue;
    }
    for (size_t k = 0; k < field->count; k++) { /* all arrays hold doubles */
      fputc(k ? ',' : '[', f);
      put_field(f, field, at + k * sizeof(double));
    }
    fputc(']', f);
  }
  fputc('}', f);
}

/* What an assignment of widths knew of each layer, and what came of it. */
static void put_bits(FILE *f, const weir_bits_run *bits) {
  const weir_bits_assigned *a = &bits->assigned;
  fprintf(f, "\"bits\":{\"method\":\"%s\",", weir_bits_methods[bits->options.method]);
  put_number(f, "alpha", bits->options.alpha);
  fprintf(f, "\"changed\":%s,\"measured\":%" PRIu64 ",\"groups\":%zu,",
          bits->changed ? "true" : "false", bits->measured, a->buckets);
  put_number(f, "bytes", a->bytes);
  put_number(f, "bytes_4", a->bytes4);
  put_number(f, "bytes_unmerged", a->solved);
  put_number(f, "error", a->error);
  put_number(f, "error_4", a->error4);
  fputs("\"layers\":[", f);
  for (size_t l = 0; l < bits->stats->layer_count; l++) {
    const weir_bits_layer *layer = &bits->stats->layers[l];
    const weir_bits_option *option = &bits->stats->options[layer->first];
    fputs(l ? ",{\"name\":" : "{\"name\":", f);
    put_text(f, layer->name ? layer->name : "");
    const weir_bits_option *chosen = &bits->stats->options[a->choice[l]];
    fprintf(f, ",\"numel\":%.0f,\"bits\":%u,\"bucket\":%u,", layer->numel, chosen->bits,
            chosen->bucket);
    put_number(f, "norm", layer->norm);
    fputs("\"error2\":[", f); /* at 2 bits, 3 bits, ... in the smallest buckets, then in
                               larger ones; full precision: none */
    for (size_t i = 0; i < layer->count && !layer->full; i++) {
      if (i) fputc(',', f);
      put_double(f, option[i].error2);
    }
    fputs("]}", f);
  }
  fputs("]},", f);
}

/* What a trial has shown, and what it took until now. */
static void put_trial(FILE *f, const weir_rounds *r) {
  char text[WEIR_PLAN_TEXT_MAX];
  fputs("\"trial\":{", f);
  put_number(f, "spent_s", r->spent_s);
  put_name(f, "elapsed_s");
  put_double(f, r->elapsed_s);
  if (r->judged < WEIR_METHODS) {
    weir_plan_format(&r->judged_plan, text);
    fputs(",\"plan\":", f);
    put_text(f, text);
    fputc(',', f);
    fprintf(f, "\"update_rule\":\"%s\",", weir_rule_names[r->rule]);
    put_number(f, "slope", r->slope.per_step);
    put_number(f, "slope_error", r->slope.error);
    put_number(f, "progress", r->judgement.mean);
    put_number(f, "low", r->judgement.low);
    put_number(f, "high", r->judgement.high);
    fprintf(f, "\"verdict\":\"%s\",\"samples\":[", weir_verdict_names[r->judgement.verdict]);
    for (size_t i = 0; i < r->samples.count; i++) {
      if (i) fputc(',', f);
      put_double(f, r->samples.sample[i]);
    }
    fputc(']', f);
  }
  fputs("},", f);
}

static void put_line(FILE *f, const weir_loop *loop, const weir_decision_input *in,
                     const weir_decision *d) {
  fprintf(f,
          "{\"format\":%d,\"decision\":%" PRIu64 ",\"step\":%" PRIu64 ",\"epoch\":%" PRIu64
          ",\"policy\":\"%s\",\"trigger\":\"%s\",",
          WEIR_JOURNAL_FORMAT, in->decision, in->step, in->epoch, loop->policy->name,
          weir_trigger_name(in->trigger));
  put_number(f, "latency_ms", 1e3 * in->latency);
  put_number(f, "bandwidth_gbps", 8e-9 * in->bandwidth);
  put_number(f, "goodput_gbps", 8e-9 * weir_input_goodput(in));
  put_number(f, "latency_error", in->latency_error);
  put_number(f, "bandwidth_error", in->bandwidth_error);
  fprintf(f, "\"workers\":%" PRIu64 ",\"elements\":%" PRIu64 ",", in->workers, in->elements);
  put_number(f, "compute_ms", 1e3 * in->compute);
  put_candidates(f, "candidates", d->candidate, d->candidates);
  put_candidates(f, "front", d->front, d->front_size);
  put_name(f, "choice");
  put_candidate(f, &d->choice);
  fprintf(f, ",\"plan_id\":%" PRIu64 ",", d->choice.plan.id);
  put_number(f, "predicted_ms", 1e3 * d->predicted_s);
  fprintf(f, "\"groups\":%zu,", d->buckets);
  fprintf(f, "\"switched\":%s,\"why\":", d->switched ? "true" : "false");
  put_text(f, d->why);
  fprintf(f, ",\"dropped\":%" PRIu64 ",", loop->dropped);
  if (loop->bits) put_bits(f, loop->bits);
  if (in->trigger == WEIR_TRIGGER_TRIAL) put_trial(f, &loop->rounds);
  put_input(f, in);
  fputs("}\n", f);
}

/* A line is there whole or not at all, so that a disk that is full for a while costs the decisions
 * of that time, and those before and after it can be read. */
static weir_status append(weir_journal *journal, const char *line, size_t bytes) {
  off_t end = lseek(journal->file, 0, SEEK_END);
  if (journal->limit > 0 && end > 0 && end + (off_t)bytes > journal->limit) {
    turn_over(journal);
    end = lseek(journal->file, 0, SEEK_END);
  }
  for (size_t at = 0; at < bytes;) {
    const ssize_t part = weir_write(journal->file, line + at, bytes - at);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) {
      const int error = part < 0 ? errno : ENOSPC;
      if (ftruncate(journal->file, end) != 0)
        return weir_fail(WEIR_E_IO, "the journal ends in half a line: %s", strerror(errno));
      return weir_fail(WEIR_E_IO, "the journal cannot be written: %s", strerror(error));
    }
    at += (size_t)part;
  }
  reserve(journal, end + (off_t)bytes);
  return WEIR_OK;
}

weir_status weir_journal_write(weir_journal *journal, const weir_loop *loop,
                               const weir_decision_input *in, const weir_decision *d) {
  char *line = NULL;
  size_t bytes = 0;
  FILE *f = open_memstream(&line, &bytes);
  if (!f) return weir_fail(WEIR_E_NOMEM, "no memory for a line of the journal");
  const locale_t before = weir_numerals_begin();
  put_line(f, loop, in, d);
  weir_numerals_end(before);
  const bool whole = fclose(f) == 0;
  const weir_status status = whole ? append(journal, line, bytes)
                                   : weir_fail(WEIR_E_NOMEM, "no memory for a line of the journal");
  free(line);
  if (status == WEIR_OK)
    tell_lost(journal);
  else
    note_lost(journal);
  return status;
}
