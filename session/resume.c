/* Saving what a rank's next step starts from, and going on from there, with as many ranks or
 * others.
 *
 * A state is a header, then tensor by tensor its name, residual, velocity, what its elements
 * usually are (kernels/whitened.h) and columns, then the buckets of the plan in force and, of rank
 * 0, what the controller has learnt, then a hash of all of that; little-endian.  Nothing of it is
 * trusted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "controller/controller.h"
#include "kernels/whitened.h"
#include "session/state.h"

#define VERSION 4u
#define HAS_VELOCITY 1u
#define IS_ZERO 2u
#define HAS_SQUARES 4u
#define RANK_MOST WEIR_POWERSGD_RANK_MAX
#define CONTROLLER_MOST ((uint64_t)1 << 28) /* bytes: some 200 of every tensor's */

typedef struct header {
  char magic[8];
  uint32_t version, flags;
  uint64_t rank, size; /* who saved it, of how many */
  uint64_t committed, turn;
  uint64_t tensors, elements;
  uint64_t columns_rank; /* columns of every matrix */
  uint64_t likeness;     /* weir_resume_likeness() */
  weir_plan plan;        /* in force; its table follows the tensors */
  weir_directive pending;
  uint64_t controller_bytes; /* that follow the table */
  double gain;               /* of the last step */
  uint64_t followed;         /* averages that squares are of */
} header;
_Static_assert(sizeof(header) == 192 && sizeof(weir_plan_bucket) == 32,
               "headers are written as they lie in memory, without gaps");
typedef struct tensor {
  uint64_t name_bytes, rows, numel;
} tensor;
static const char magic[8] = {'W', 'E', 'I', 'R', 'S', 'A', 'V', 'E'};

/* --- saving ----------------------------------------------------------------------------------- */

typedef struct writer {
  weir_write_fn write;
  void *user;
  uint64_t hash;
  bool good;
} writer;

static void put(writer *w, const void *data, size_t bytes) {
  w->good = w->good && (bytes == 0 || w->write(w->user, data, bytes));
  w->hash = weir_hash(w->hash, data, bytes);
}

uint64_t weir_resume_likeness(const weir_session *session) {
  const weir_options *options = &session->options;
  const uint64_t numbers[] = {options->warmup_steps, weir_session_digest_tensors(session)};
  uint64_t hash = weir_hash(WEIR_HASH_INIT, numbers, sizeof numbers);
  hash = weir_hash(hash, options->policy, strlen(options->policy) + 1);
  if (options->risk != NULL) hash = weir_hash(hash, options->risk, strlen(options->risk) + 1);
  if (options->update_rule != NULL)
    hash = weir_hash(hash, options->update_rule, strlen(options->update_rule) + 1);
  /* It moves tensors: a table of buckets would be of others. */
  const char *full = options->full_precision;
  if (full != NULL) hash = weir_hash(hash, full, strlen(full) + 1);
  return hash != 0 ? hash : 1;
}

/* Floats of each column of low rank (weir_warm). */
static size_t columns_of(size_t rows, size_t numel) { return rows > 1 ? numel / rows + rows : 0; }

weir_status weir_session_save(weir_session *session, weir_write_fn write, void *user) {
  weir_engine_memory m;
  weir_status status = weir_session_check(session);
  if (status == WEIR_OK && write == NULL)
    status = weir_fail(WEIR_E_INVALID, "there is no function to write with");
  if (status == WEIR_OK) status = weir_engine_memory_open(session->engine, 0, false, &m);
  if (status != WEIR_OK) return status;
  void *learnt = NULL;
  size_t learnt_bytes = 0;
  if (session->controller != NULL)
    status = weir_controller_save(session->controller, &learnt, &learnt_bytes);
  if (status != WEIR_OK) return status;
  writer w = {write, user, WEIR_HASH_INIT, true};
  header h = {.version = VERSION,
              .flags = (m.velocity != NULL ? HAS_VELOCITY : 0) | (m.zero ? IS_ZERO : 0) |
                       (m.squares != NULL ? HAS_SQUARES : 0),
              .rank = (uint64_t)session->options.rank,
              .size = (uint64_t)session->options.world_size,
              .committed = m.committed,
              .turn = m.turn,
              .tensors = session->tensors,
              .elements = session->offset[session->tensors],
              .columns_rank = m.rank,
              .likeness = session->saved_likeness,
              .plan = m.plan,
              .pending = m.pending,
              .controller_bytes = learnt_bytes,
              .gain = m.gain,
              .followed = m.followed};
  memcpy(h.magic, magic, sizeof magic);
  put(&w, &h, sizeof h);
  for (size_t t = 0; t < session->tensors; t++) {
    const size_t at = session->offset[t], numel = session->offset[t + 1] - at;
    const tensor told = {strlen(session->names[t]), session->rows[t], numel};
    put(&w, &told, sizeof told);
    put(&w, session->names[t], told.name_bytes);
    put(&w, m.residual + at, numel * sizeof(float));
    if (m.velocity != NULL) put(&w, m.velocity + at, numel * sizeof(float));
    if (m.squares != NULL) put(&w, m.squares + at, numel * sizeof *m.squares);
    const size_t width = columns_of(session->rows[t], numel);
    for (size_t k = 0; k < m.rank && width > 0; k++)
      put(&w, m.columns + k * m.width + m.at[t], width * sizeof(float));
  }
  put(&w, m.table, m.plan.buckets * sizeof *m.table);
  put(&w, learnt, learnt_bytes);
  free(learnt);
  const uint64_t hash = w.hash;
  put(&w, &hash, sizeof hash);
  return w.good ? WEIR_OK : weir_fail(WEIR_E_IO, "a session's state could not be written");
}

weir_status weir_rescale(weir_session *session, double factor) {
  weir_status status = weir_session_check(session);
  if (status != WEIR_OK) return status;
  if (!isfinite(factor) || factor == 0 || !isfinite((float)factor) || (float)factor == 0)
    return weir_fail(WEIR_E_INVALID, "residuals cannot be rescaled by %g", factor);
  return weir_engine_rescale(session->engine, (float)factor);
}

/* --- loading ---------------------------------------------------------------------------------- */

typedef struct reader {
  weir_read_fn read;
  void *user;
  uint64_t hash;
  char *name; /* of the tensor at hand, in so many bytes */
  size_t name_room;
} reader;

static weir_status get(reader *r, void *data, size_t bytes) {
  if (bytes > 0 && !r->read(r->user, data, bytes))
    return weir_fail(WEIR_E_IO, "a saved state ends too soon, or cannot be read");
  r->hash = weir_hash(r->hash, data, bytes);
  return WEIR_OK;
}

void weir_resume_free(weir_resume *resume) {
  if (resume == NULL) return;
  free(resume->offset);
  free(resume->at);
  free(resume->residual);
  free(resume->velocity);
  free(resume->columns);
  free(resume->squares);
  free(resume->table);
  free(resume->controller);
  free(resume);
}

static weir_status make(weir_resume **out, const weir_session *session, const header *h) {
  weir_resume *resume = calloc(1, sizeof *resume);
  *out = resume;
  if (resume == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a saved state");
  const size_t n = session->offset[session->tensors];
  resume->committed = h->committed;
  resume->turn = h->turn;
  resume->size = h->size;
  resume->zero = (h->flags & IS_ZERO) != 0;
  if (h->likeness == weir_resume_likeness(session) &&
      h->size == (uint64_t)session->options.world_size)
    resume->likeness = h->likeness;
  resume->plan = h->plan;
  resume->pending = h->pending;
  resume->gain = h->gain;
  resume->followed = h->followed;
  resume->tensors = session->tensors;
  resume->offset = calloc(session->tensors + 1, sizeof *resume->offset);
  resume->at = calloc(session->tensors + 1, sizeof *resume->at);
  resume->residual = calloc(n + 1, sizeof *resume->residual);
  if (session->options.momentum_correction > 0)
    resume->velocity = calloc(n + 1, sizeof *resume->velocity);
  if ((h->flags & HAS_SQUARES) != 0) resume->squares = calloc(n + 1, sizeof *resume->squares);
  if (resume->offset == NULL || resume->at == NULL || resume->residual == NULL ||
      ((h->flags & HAS_SQUARES) != 0 && resume->squares == NULL) ||
      (session->options.momentum_correction > 0 && resume->velocity == NULL))
    return weir_fail(WEIR_E_NOMEM, "no memory for a saved state of %zu elements", n);
  for (size_t t = 0; t < session->tensors; t++) {
    const size_t numel = session->offset[t + 1] - session->offset[t];
    resume->offset[t + 1] = session->offset[t + 1];
    resume->at[t + 1] = resume->at[t] + columns_of(session->rows[t], numel);
  }
  resume->width = resume->at[session->tensors];
  resume->rank = h->columns_rank;
  resume->columns = calloc(resume->rank * resume->width + 1, sizeof *resume->columns);
  if (resume->columns == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for saved columns");
  return WEIR_OK;
}

/* A switch to a plan that can be, or nothing. */
static bool directs(const weir_directive *pending) {
  static const weir_directive none;
  if (memcmp(pending, &none, sizeof none) == 0) return true;
  return pending->action == WEIR_ACTION_SWITCH && pending->reserved == 0 &&
         weir_plan_check(&pending->plan) == WEIR_OK;
}

static weir_status check_header(const weir_session *session, const header *h) {
  const bool momentum = session->options.momentum_correction > 0;
  if (memcmp(h->magic, magic, sizeof magic) != 0)
    return weir_fail(WEIR_E_PARSE, "this is no saved state of a session");
  if (h->version != VERSION)
    return weir_fail(WEIR_E_PARSE, "the state is of version %u; %u is read", h->version, VERSION);
  if (h->size < 1 || h->rank >= h->size || h->columns_rank > RANK_MOST ||
      (h->flags & ~(HAS_VELOCITY | IS_ZERO | HAS_SQUARES)) != 0 ||
      ((h->flags & HAS_SQUARES) != 0) != (h->followed > 0))
    return weir_fail(WEIR_E_PARSE, "a saved state's header is damaged");
  if (weir_plan_check(&h->plan) != WEIR_OK || !directs(&h->pending) ||
      h->plan.buckets > h->tensors || h->controller_bytes > CONTROLLER_MOST ||
      !(h->gain >= 0 && h->gain <= 1))
    return weir_fail(WEIR_E_PARSE, "the plan in a saved state's header is damaged");
  if (h->tensors != session->tensors || h->elements != session->offset[session->tensors])
    return weir_fail(WEIR_E_MISMATCH,
                     "the state is of %llu tensors with %llu elements; %zu with %zu are registered",
                     (unsigned long long)h->tensors, (unsigned long long)h->elements,
                     session->tensors, session->offset[session->tensors]);
  if ((h->flags & HAS_VELOCITY) != 0 && !momentum)
    return weir_fail(WEIR_E_MISMATCH, "the state has a velocity, and momentum_correction is 0");
  const weir_resume *before = session->resume;
  if (before != NULL && (before->committed != h->committed || before->turn != h->turn ||
                         before->size != h->size || before->rank != h->columns_rank))
    return weir_fail(WEIR_E_MISMATCH,
                     "the state is of step %llu of %llu ranks; the one loaded before of %llu of "
                     "%llu",
                     (unsigned long long)h->committed, (unsigned long long)h->size,
                     (unsigned long long)before->committed, (unsigned long long)before->size);
  return WEIR_OK;
}

/* Most often they come in the order of registration: the search begins at `from`.  Several may have
 * one name: then one of that length that is not seen yet, else any of them. */
static size_t find(const weir_session *session, const char *name, uint64_t numel, size_t from,
                   const bool *seen) {
  size_t found = session->tensors;
  for (size_t i = 0; i < session->tensors; i++) {
    const size_t t = (from + i) % session->tensors;
    if (strcmp(session->names[t], name) != 0) continue;
    if (!seen[t] && session->offset[t + 1] - session->offset[t] == numel) return t;
    found = t;
  }
  return found;
}

/* Room for a name, and for those that are not registered, of which messages tell. */
static size_t room_for_names(const weir_session *session) {
  size_t room = 4096;
  for (size_t t = 0; t < session->tensors; t++) {
    const size_t due = strlen(session->names[t]) + 1;
    if (due > room) room = due;
  }
  return room;
}

static weir_status get_floats(reader *r, float *to, size_t count, const char *name) {
  const weir_status status = get(r, to, count * sizeof *to);
  for (size_t i = 0; status == WEIR_OK && i < count; i++)
    if (!isfinite(to[i]))
      return weir_fail(WEIR_E_PARSE, "the saved state of tensor \"%s\" is not finite", name);
  return status;
}

static weir_status get_squares(reader *r, uint16_t *to, size_t count, const char *name) {
  const weir_status status = get(r, to, count * sizeof *to);
  for (size_t i = 0; status == WEIR_OK && i < count; i++)
    if (to[i] > WEIR_SQUARE_MOST)
      return weir_fail(WEIR_E_PARSE, "what tensor \"%s\" usually is was not saved finite", name);
  return status;
}

static weir_status get_tensor(reader *r, const weir_session *session, const header *h,
                              weir_resume *resume, size_t i, bool *seen) {
  char *const name = r->name;
  tensor told;
  weir_status status = get(r, &told, sizeof told);
  if (status == WEIR_OK && told.name_bytes >= r->name_room)
    status = weir_fail(WEIR_E_PARSE, "a saved tensor's name is %llu bytes long",
                       (unsigned long long)told.name_bytes);
  if (status == WEIR_OK) status = get(r, name, told.name_bytes);
  if (status != WEIR_OK) return status;
  name[told.name_bytes] = 0;
  const size_t t = find(session, name, told.numel, i, seen);
  if (t == session->tensors || seen[t])
    return weir_fail(WEIR_E_MISMATCH, "the state's tensor \"%s\" is %s", name,
                     t == session->tensors ? "not registered" : "in it twice");
  seen[t] = true;
  const size_t at = resume->offset[t], numel = resume->offset[t + 1] - at;
  if (told.numel != numel || told.rows != session->rows[t])
    return weir_fail(WEIR_E_MISMATCH,
                     "tensor \"%s\" was saved with %llu elements in %llu rows; it is registered "
                     "with %zu in %zu",
                     name, (unsigned long long)told.numel, (unsigned long long)told.rows, numel,
                     session->rows[t]);
  status = get_floats(r, resume->residual + at, numel, name);
  if (status == WEIR_OK && (h->flags & HAS_VELOCITY) != 0)
    status = get_floats(r, resume->velocity + at, numel, name);
  if (status == WEIR_OK && resume->squares != NULL)
    status = get_squares(r, resume->squares + at, numel, name);
  const size_t width = resume->at[t + 1] - resume->at[t];
  for (size_t k = 0; k < resume->rank && width > 0 && status == WEIR_OK; k++)
    status = get_floats(r, resume->columns + k * resume->width + resume->at[t], width, name);
  return status;
}

/* The table of the plan in force. */
static weir_status get_table(reader *r, const header *h, weir_resume *resume) {
  const uint32_t buckets = h->plan.buckets;
  if (buckets == 0) return WEIR_OK;
  resume->table = calloc(buckets, sizeof *resume->table);
  if (resume->table == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %u buckets", buckets);
  weir_status status = get(r, resume->table, buckets * sizeof *resume->table);
  if (status == WEIR_OK && (weir_buckets_check(resume->table, buckets, h->tensors) != WEIR_OK ||
                            weir_buckets_name(resume->table, buckets) != h->plan.layout))
    status = weir_fail(WEIR_E_PARSE, "the buckets of a saved state's plan are damaged");
  return status;
}

static weir_status get_learnt(reader *r, const header *h, weir_resume *resume) {
  if (h->controller_bytes == 0) return WEIR_OK;
  resume->controller_bytes = h->controller_bytes;
  resume->controller = malloc(h->controller_bytes);
  if (resume->controller == NULL)
    return weir_fail(WEIR_E_NOMEM, "no memory for what a controller has learnt");
  bool ours = true;
  weir_status status = get(r, resume->controller, h->controller_bytes);
  if (status == WEIR_OK)
    status =
        weir_controller_saved_check(resume->controller, h->controller_bytes, h->tensors, &ours);
  if (status != WEIR_OK || ours) return status;
  weir_log(WEIR_LOG_WARN, "what was learnt before is of another version of Weir: it is left");
  free(resume->controller);
  resume->controller = NULL;
  return WEIR_OK;
}

static weir_status get_state(reader *r, const weir_session *session, const header *h,
                             weir_resume *resume) {
  bool *seen = calloc(session->tensors + 1, sizeof *seen);
  r->name_room = room_for_names(session);
  r->name = malloc(r->name_room);
  weir_status status = seen != NULL && r->name != NULL
                           ? WEIR_OK
                           : weir_fail(WEIR_E_NOMEM, "no memory for a saved state");
  for (size_t i = 0; i < session->tensors && status == WEIR_OK; i++)
    status = get_tensor(r, session, h, resume, i, seen);
  free(r->name);
  free(seen);
  if (status == WEIR_OK) status = get_table(r, h, resume);
  if (status == WEIR_OK) status = get_learnt(r, h, resume);
  const uint64_t due = r->hash;
  uint64_t told = 0;
  if (status == WEIR_OK) status = get(r, &told, sizeof told);
  if (status == WEIR_OK && told != due)
    status = weir_fail(WEIR_E_PARSE, "a saved state is damaged: its checksum is wrong");
  return status;
}

static uint64_t hash_of(uint64_t rank) { return weir_hash(WEIR_HASH_INIT, &rank, sizeof rank); }

/* An average is a sum over ranks divided by their number: so that what is kept back counts in it as
 * much as it would have. */
static void add_up(weir_session *session, weir_resume *next, uint64_t rank) {
  const size_t n = next->offset[next->tensors];
  const float share = (float)session->options.world_size / (float)next->size;
  if (share != 1) {
    weir_scale(next->residual, n, share);
    if (next->velocity != NULL) weir_scale(next->velocity, n, share);
  }
  const weir_resume *before = session->resume;
  if (before != NULL) {
    for (size_t i = 0; i < n; i++) next->residual[i] += before->residual[i];
    for (size_t i = 0; i < n && next->velocity != NULL; i++)
      next->velocity[i] += before->velocity[i];
    next->zero = next->zero && before->zero;
    next->count = before->count;
    next->whose = before->whose;
    if (next->controller == NULL) {
      next->controller = before->controller;
      next->controller_bytes = before->controller_bytes;
      session->resume->controller = NULL;
    }
  }
  next->count++;
  next->whose += hash_of(rank);
  weir_resume_free(session->resume);
  session->resume = next;
}

weir_status weir_session_load(weir_session *session, weir_read_fn read, void *user) {
  if (session == NULL || read == NULL)
    return weir_fail(WEIR_E_INVALID, "a session and a function to read with are needed");
  if (session->start_tried)
    return weir_fail(WEIR_E_STATE, "a state is loaded before weir_session_start");
  reader r = {.read = read, .user = user, .hash = WEIR_HASH_INIT};
  header h;
  weir_resume *next = NULL;
  weir_status status = get(&r, &h, sizeof h);
  if (status == WEIR_OK) status = check_header(session, &h);
  if (status == WEIR_OK) status = make(&next, session, &h);
  if (status == WEIR_OK) status = get_state(&r, session, &h, next);
  if (status == WEIR_OK)
    add_up(session, next, h.rank);
  else
    weir_resume_free(next);
  return status;
}

/* --- at the start ----------------------------------------------------------------------------- */

/* With the table, which its layout names, and what is directed next.  Who decides needs to know how
 * it came to that. */
static uint64_t plan_digest(const weir_session *session) {
  const weir_resume *resume = session->resume;
  uint64_t hash = weir_hash(resume->likeness, &resume->plan, sizeof resume->plan);
  hash = weir_hash(hash, &resume->pending, sizeof resume->pending);
  if (resume->likeness == 0 || resume->count != 1 ||
      (session->options.rank == 0 && resume->controller == NULL))
    return 0;
  return hash != 0 ? hash : 1;
}

void weir_resume_tell(const weir_session *session, weir_resume_told *mine) {
  const weir_resume *resume = session->resume;
  *mine = resume == NULL
              ? (weir_resume_told){0}
              : (weir_resume_told){resume->committed, resume->turn,  resume->size,
                                   resume->count,     resume->whose, plan_digest(session)};
}

weir_status weir_resume_agree(weir_session *session, const weir_resume_told *all) {
  weir_resume_told sum = {0}, due = {0};
  bool each = true; /* rank has loaded one state */
  for (int r = 0; r < session->options.world_size; r++) {
    each = each && all[r].count == 1;
    if (all[r].count == 0) continue;
    if (sum.count == 0)
      sum = (weir_resume_told){
          .committed = all[r].committed, .turn = all[r].turn, .size = all[r].size};
    if (sum.committed != all[r].committed || sum.turn != all[r].turn || sum.size != all[r].size)
      return weir_fail(WEIR_E_MISMATCH,
                       "rank %d goes on from step %llu of %llu ranks, others from step %llu of "
                       "%llu",
                       r, (unsigned long long)all[r].committed, (unsigned long long)all[r].size,
                       (unsigned long long)sum.committed, (unsigned long long)sum.size);
    sum.count += all[r].count;
    sum.whose += all[r].whose;
  }
  if (sum.count == 0) return WEIR_OK;
  for (uint64_t rank = 0; rank < sum.size && sum.count == sum.size; rank++)
    due.whose += hash_of(rank);
  if (sum.count != sum.size || sum.whose != due.whose)
    return weir_fail(WEIR_E_MISMATCH,
                     "%llu ranks have saved a state, and %llu states were loaded: each is to be "
                     "loaded by one rank, once",
                     (unsigned long long)sum.size, (unsigned long long)sum.count);
  sum.plan = all[0].plan;
  for (int r = 1; r < session->options.world_size; r++)
    if (all[r].plan != sum.plan) sum.plan = 0;
  session->resume_told = sum;
  session->resume_columns = each;
  return WEIR_OK;
}

/* Columns, and what elements usually are, are the same on all ranks only where all have loaded
 * them. */
static void apply_tensors(const weir_session *session, const weir_engine_memory *m, bool alike) {
  const weir_resume *from = session->resume;
  for (size_t t = 0; t < from->tensors; t++) {
    const size_t to = session->place[t], numel = from->offset[t + 1] - from->offset[t];
    const size_t width = from->at[t + 1] - from->at[t];
    memcpy(m->residual + session->offset[to], from->residual + from->offset[t],
           numel * sizeof(float));
    if (m->velocity != NULL)
      memcpy(m->velocity + session->offset[to], from->velocity + from->offset[t],
             numel * sizeof(float));
    if (m->squares != NULL && from->squares != NULL && alike)
      memcpy(m->squares + session->offset[to], from->squares + from->offset[t],
             numel * sizeof *m->squares);
    for (size_t k = 0; k < from->rank && alike; k++)
      memcpy(m->columns + k * m->width + m->at[to], from->columns + k * from->width + from->at[t],
             width * sizeof(float));
  }
}

weir_status weir_resume_apply(weir_session *session, bool *alike) {
  const weir_resume_told *told = &session->resume_told;
  const weir_resume *from = session->resume;
  const bool columns = from != NULL && session->resume_columns;
  weir_engine_memory m;
  *alike = false;
  if (told->size == 0) return WEIR_OK;
  weir_status status = weir_engine_memory_open(session->engine, columns ? from->rank : 0,
                                               columns && from->squares != NULL, &m);
  if (status == WEIR_OK) status = weir_session_first_plan(session, told->committed, &m.plan);
  if (status != WEIR_OK) return status;
  m.pending = (weir_directive){.action = WEIR_ACTION_KEEP};
  m.committed = told->committed;
  m.turn = told->turn;
  if (from != NULL) {
    apply_tensors(session, &m, columns);
    m.zero = from->zero;
    m.gain = from->gain;
    if (columns && from->squares != NULL) m.followed = from->followed;
  }
  if (from != NULL && told->plan != 0) {
    m.plan = from->plan;
    m.table = from->table;
    m.pending = from->pending;
  }
  status = weir_engine_memory_take(session->engine, &m);
  weir_plan now;
  weir_engine_plan(session->engine, &now);
  *alike = told->plan != 0 && memcmp(&now, &m.plan, sizeof now) == 0;
  if (told->plan != 0 && !*alike && status == WEIR_OK && session->options.rank == 0)
    weir_log(WEIR_LOG_WARN, "the saved plan is left, and the policy begins with its first: %s",
             weir_last_error());
  return status;
}
