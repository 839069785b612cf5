/* Opening and closing a cache, and how its ranks find one another: each tells the others over the
 * session where it serves, once. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/base.h"
#include "cache/cache.h"
#include "collectives/transports/tcp.h"
#include "session/abi.h"
#include "session/state.h"

#define SAMPLE_MOST ((size_t)1 << 30)
#define TOKEN 32

static const weir_cache_options defaults = {
    .struct_size = sizeof defaults, .seed = 1, .readers = 4, .ahead = 64, .timeout_s = 5};
static const weir_abi_struct options_abi = WEIR_ABI_STRUCT(weir_cache_options, bind_address);
static const weir_abi_struct stats_abi = WEIR_ABI_STRUCT(weir_cache_stats, strangers);

void weir_cache_options_init_sized(weir_cache_options *options, size_t struct_size) {
  const size_t known = struct_size < sizeof defaults ? struct_size : sizeof defaults;
  memset(options, 0, struct_size);
  memcpy(options, &defaults, known);
  if (struct_size >= sizeof struct_size) options->struct_size = struct_size;
}

static weir_status check(const weir_cache_options *o) {
  if (o->samples < 1 || o->samples > UINT32_MAX)
    return weir_fail(WEIR_E_INVALID, "samples is %" PRIu64 ", expected 1 to 2^32 - 1", o->samples);
  if (o->sample_bytes < 1 || o->sample_bytes > SAMPLE_MOST || o->source_bytes > SAMPLE_MOST)
    return weir_fail(WEIR_E_INVALID,
                     "sample_bytes is %zu and source_bytes %zu, expected 1 to 2^30 bytes",
                     o->sample_bytes, o->source_bytes);
  if (o->read == NULL) return weir_fail(WEIR_E_INVALID, "read is NULL: a cache needs a source");
  if (o->readers < 1 || o->readers > 64 || o->ahead < 1 || o->ahead > 65536)
    return weir_fail(WEIR_E_INVALID,
                     "%" PRIu32 " readers and %" PRIu32
                     " samples ahead, expected 1 to 64, 1 to 65536",
                     o->readers, o->ahead);
  if (!(o->timeout_s > 0 && o->timeout_s <= 3600))
    return weir_fail(WEIR_E_INVALID, "timeout_s is %g, expected more than 0, at most 3600",
                     o->timeout_s);
  return WEIR_OK;
}

/* --- memory --------------------------------------------------------------------------------- */

/* Places for connections to be served: of every thread of the others, and of strangers. */
static size_t guests_of(const weir_cache *c) {
  return (size_t)(c->size - 1) * (c->options.readers + 1) + 16;
}

/* What the cache takes before it holds a sample. */
static uint64_t memory_least(const weir_cache *c) {
  const weir_cache_options *o = &c->options;
  const uint64_t raw = o->decode != NULL ? o->source_bytes : 0, threads = o->readers + 1;
  const uint64_t window = o->ahead * (o->sample_bytes + sizeof(cache_slot));
  const uint64_t serving =
      o->readers * (o->sample_bytes + raw) + guests_of(c) * sizeof(cache_guest);
  return sizeof *c + o->samples * (sizeof(cache_held) + sizeof(uint32_t)) + window + threads * raw +
         o->sample_bytes + (c->size > 1 ? serving : 0);
}

static bool make_scratch(const weir_cache *c, cache_scratch *s, bool sample) {
  const bool source = c->options.decode != NULL;
  if (sample) s->sample = malloc(c->options.sample_bytes);
  if (source) s->source = malloc(c->options.source_bytes);
  return (!sample || s->sample != NULL) && (!source || s->source != NULL);
}

static bool make_serving(weir_cache *c) {
  cache_service *s = &c->service;
  s->guests = guests_of(c);
  s->guest = calloc(s->guests, sizeof *s->guest);
  s->scratch = calloc(c->options.readers, sizeof *s->scratch);
  s->spare = c->options.readers;
  bool good = s->guest != NULL && s->scratch != NULL;
  for (uint32_t i = 0; i < s->spare && good; i++) good = make_scratch(c, &s->scratch[i], true);
  return good;
}

static weir_status allocate(weir_cache *c) {
  const weir_cache_options *o = &c->options;
  const uint32_t threads = o->readers + 1;
  const size_t links = threads * (size_t)c->size;
  c->memory_bytes = memory_least(c);
  if (o->memory_limit > 0 && o->memory_limit < c->memory_bytes)
    return weir_fail(WEIR_E_INVALID,
                     "memory_limit is %" PRIu64 " bytes, and reading %" PRIu32
                     " samples ahead takes %" PRIu64 " without keeping any",
                     o->memory_limit, o->ahead, c->memory_bytes);
  c->held = calloc(o->samples, sizeof *c->held);
  c->scratch = calloc(threads, sizeof *c->scratch);
  c->link = malloc(links * sizeof *c->link);
  /* Before anything can fail: whatever is not -1 is taken for a connection, and closed. */
  for (size_t i = 0; i < links && c->link != NULL; i++) c->link[i] = -1;
  c->ahead.order = malloc(o->samples * sizeof *c->ahead.order);
  c->ahead.slot = calloc(o->ahead, sizeof *c->ahead.slot);
  c->ahead.data = malloc(o->ahead * o->sample_bytes);
  c->ahead.thread = calloc(o->readers, sizeof *c->ahead.thread);
  bool good = c->held && c->scratch && c->link && c->ahead.order && c->ahead.slot &&
              c->ahead.data && c->ahead.thread;
  for (uint32_t i = 0; i < threads && good; i++) good = make_scratch(c, &c->scratch[i], i == 0);
  if (good && c->size > 1) good = make_serving(c);
  return good ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no memory for a cache of samples");
}

/* --- addresses ------------------------------------------------------------------------------ */

static bool is_loopback(const struct sockaddr_in *at) {
  return ntohl(at->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* The local address from which rank 0 is reached. */
static weir_status route(const tcp_places *to, const char *where, struct sockaddr_in *own) {
  bool found = false;
  int error = 0;
  for (size_t i = 0; i < to->count && !found; i++) {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof *own;
    found = fd >= 0 && connect(fd, (const struct sockaddr *)&to->at[i], sizeof to->at[i]) == 0 &&
            getsockname(fd, (struct sockaddr *)own, &length) == 0;
    error = errno;
    if (fd >= 0) (void)close(fd);
  }
  own->sin_port = 0;
  return found ? WEIR_OK : weir_fail(WEIR_E_IO, "no way to %s: %s", where, strerror(error));
}

static bool is_own(const struct sockaddr_in *at) {
  const struct sockaddr_in any_port = {.sin_family = AF_INET, .sin_addr = at->sin_addr};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool own = fd >= 0 && bind(fd, (const struct sockaddr *)&any_port, sizeof any_port) == 0;
  if (fd >= 0) (void)close(fd);
  return own;
}

/* Of several machines, whose ranks have not met at an address, as over MPI: the one that this
 * machine's name leads to, if others reach it there. */
static weir_status find_by_name(int machines, struct sockaddr_in *own) {
  char where[HOST_NAME_MAX + 4] = "";
  tcp_places to = {.count = 0};
  const bool named = gethostname(where, HOST_NAME_MAX) == 0;
  (void)strcat(where, ":1");
  if (!named || tcp_resolve(where, weir_now_s(), &to) != WEIR_OK) to.count = 0;
  for (size_t i = 0; i < to.count; i++) {
    if (is_loopback(&to.at[i]) || !is_own(&to.at[i])) continue;
    own->sin_addr = to.at[i].sin_addr;
    return WEIR_OK;
  }
  return weir_fail(WEIR_E_UNSUPPORTED,
                   "the cache's ranks are on %d machines, and this one's name leads to no address "
                   "at which others reach it: set the cache's bind_address on each",
                   machines);
}

/* Where the others reach this rank already, if nothing else is asked for; an address of all
 * interfaces says nothing of that. */
static weir_status find_address(const weir_cache *c, const weir_session *session,
                                struct sockaddr_in *own) {
  weir_transport *t = session->transport;
  const char *text = c->options.bind_address, *where = session->options.rendezvous;
  const int machines = weir_comm_hosts(session->comm);
  weir_status status = WEIR_OK;
  tcp_places to;
  if (text == NULL && t->ops->address != NULL) text = t->ops->address(t, t->rank);
  if (text == NULL) text = session->options.bind_address;
  *own = (struct sockaddr_in){.sin_family = AF_INET};
  if (text != NULL && inet_pton(AF_INET, text, &own->sin_addr) != 1)
    return weir_fail(WEIR_E_INVALID, "bind_address \"%s\" is not an IPv4 address", text);
  if (own->sin_addr.s_addr != htonl(INADDR_ANY)) return WEIR_OK;
  own->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (where != NULL && strchr(where, ':') != NULL && tcp_resolve(where, 0, &to) == WEIR_OK)
    status = route(&to, where, own);
  if (status != WEIR_OK || machines < 2 || !is_loopback(own)) return status;
  return find_by_name(machines, own);
}

static weir_status open_door(weir_cache *c, const weir_session *session, struct sockaddr_in *own) {
  weir_status status = find_address(c, session, own);
  if (status != WEIR_OK) return status;
  if (!session->has_secret && !is_loopback(own))
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "a job without a secret can have a cache on the loopback only");
  return tcp_listen(own, weir_now_s() + c->options.timeout_s, &c->service.listener);
}

/* What a rank says of its part; the address as the network has it. */
typedef struct cache_card {
  uint32_t address, ready;
  uint16_t port, zero[3];
  uint64_t samples, sample_bytes, seed;
  unsigned char token[TOKEN]; /* rank 0's makes the key */
} cache_card;
_Static_assert(sizeof(cache_card) == 72, "a card has no padding");

static weir_status read_cards(weir_cache *c, const weir_session *session, const cache_card *card) {
  const cache_card *mine = &card[c->rank];
  for (int r = 0; r < c->size; r++) {
    if (!card[r].ready)
      return weir_fail(WEIR_E_STATE, "rank %d could not open its part of the cache", r);
    if (card[r].samples != mine->samples || card[r].sample_bytes != mine->sample_bytes ||
        card[r].seed != mine->seed)
      return weir_fail(WEIR_E_MISMATCH,
                       "rank %d has a cache of other samples, or another seed, than rank %d", r,
                       c->rank);
    c->peer[r].address = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = card[r].address, .sin_port = card[r].port};
  }
  c->key = weir_key_of_group(&session->key, card[0].token, TOKEN);
  return WEIR_OK;
}

/* Everybody takes part, also who has failed already: nobody waits in vain. */
static weir_status meet(weir_cache *c, weir_session *session, weir_status status) {
  struct sockaddr_in own = {0};
  cache_card mine = {.samples = htole64(c->options.samples),
                     .sample_bytes = htole64(c->options.sample_bytes),
                     .seed = htole64(c->options.seed)};
  char why[512] = "";
  if (status == WEIR_OK) status = open_door(c, session, &own);
  if (status == WEIR_OK && getrandom(mine.token, TOKEN, 0) != TOKEN)
    status = weir_fail(WEIR_E_IO, "no random numbers: %s", strerror(errno));
  (void)strncpy(why, weir_last_error(), sizeof why - 1);
  mine.address = own.sin_addr.s_addr;
  mine.port = own.sin_port;
  mine.ready = status == WEIR_OK;
  cache_card *all = calloc((size_t)c->size, sizeof *all);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %d addresses", c->size);
  weir_status met = weir_allgather_bytes(session, &mine, sizeof mine, all);
  if (status != WEIR_OK) met = weir_fail(status, "%s", why);
  if (met == WEIR_OK) met = read_cards(c, session, all);
  free(all);
  return met;
}

/* --- life ----------------------------------------------------------------------------------- */

static weir_status create(weir_cache **out, const weir_session *session) {
  weir_cache *c = calloc(1, sizeof *c);
  if (c == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a cache of samples");
  c->rank = session != NULL ? session->options.rank : 0;
  c->size = session != NULL ? session->options.world_size : 1;
  c->disk.fd = c->service.listener = c->service.stop = -1;
  (void)pthread_mutex_init(&c->mutex, NULL);
  (void)pthread_cond_init(&c->loaded, NULL);
  (void)pthread_mutex_init(&c->ahead.mutex, NULL);
  (void)pthread_cond_init(&c->ahead.changed, NULL);
  (void)pthread_mutex_init(&c->service.mutex, NULL);
  (void)pthread_cond_init(&c->service.freed, NULL);
  *out = c;
  c->peer = calloc((size_t)c->size, sizeof *c->peer);
  return c->peer != NULL ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", c->size);
}

static weir_status prepare(weir_cache *c, const weir_cache_options *options) {
  c->options = defaults;
  weir_status status = options != NULL ? weir_abi_take(&options_abi, &c->options, options)
                                       : weir_fail(WEIR_E_INVALID, "no options of a cache");
  if (status == WEIR_OK) status = check(&c->options);
  if (status == WEIR_OK && c->options.source_bytes == 0)
    c->options.source_bytes = c->options.sample_bytes;
  if (status == WEIR_OK) status = allocate(c);
  return status == WEIR_OK ? cache_disk_open(c) : status;
}

weir_status weir_cache_open(weir_cache **out, weir_session *session,
                            const weir_cache_options *options) {
  weir_cache *c = NULL;
  if (out == NULL) return weir_fail(WEIR_E_INVALID, "no place for a cache");
  *out = NULL;
  weir_status status = session != NULL ? weir_session_check(session) : WEIR_OK;
  if (status != WEIR_OK) return status;
  status = create(&c, session);
  if (status == WEIR_OK) status = prepare(c, options);
  if (c != NULL && c->size > 1) status = meet(c, session, status);
  if (status == WEIR_OK) status = cache_serve_start(c);
  if (status == WEIR_OK) status = cache_ahead_start(c);
  if (status == WEIR_OK) {
    c->options.folder = c->options.bind_address = NULL; /* were the caller's */
    *out = c;
    return WEIR_OK;
  }
  weir_cache_close(c);
  return status;
}

weir_status weir_cache_statistics(weir_cache *c, weir_cache_stats *stats) {
  if (c == NULL || stats == NULL) return weir_fail(WEIR_E_INVALID, "no cache, or no place");
  const weir_status status = weir_abi_check(&stats_abi, stats->struct_size);
  if (status != WEIR_OK) return status;
  (void)pthread_mutex_lock(&c->mutex);
  weir_cache_stats now = c->stats;
  now.struct_size = stats->struct_size;
  now.memory_bytes = c->memory_bytes;
  now.disk_bytes = c->disk.end;
  (void)pthread_mutex_unlock(&c->mutex);
  weir_abi_give(stats, &now);
  return WEIR_OK;
}

static void free_scratch(cache_scratch *scratch, uint32_t count) {
  for (uint32_t i = 0; i < count && scratch != NULL; i++) {
    free(scratch[i].sample);
    free(scratch[i].source);
  }
  free(scratch);
}

static void free_memory(weir_cache *c) {
  const uint32_t readers = c->options.readers;
  for (uint64_t i = 0; i < c->options.samples && c->held != NULL; i++) free(c->held[i].data);
  for (size_t i = 0; i < (readers + 1) * (size_t)c->size && c->link != NULL; i++)
    if (c->link[i] >= 0) (void)close(c->link[i]);
  free_scratch(c->scratch, readers + 1);
  free_scratch(c->service.scratch, readers);
  free(c->held);
  free(c->link);
  free(c->ahead.order);
  free(c->ahead.slot);
  free(c->ahead.data);
  free(c->ahead.thread);
  free(c->service.guest);
  free(c->peer);
}

void weir_cache_close(weir_cache *c) {
  if (c == NULL) return;
  cache_ahead_stop(c);
  cache_serve_stop(c);
  cache_disk_close(c);
  free_memory(c);
  (void)pthread_cond_destroy(&c->loaded);
  (void)pthread_cond_destroy(&c->ahead.changed);
  (void)pthread_cond_destroy(&c->service.freed);
  (void)pthread_mutex_destroy(&c->mutex);
  (void)pthread_mutex_destroy(&c->ahead.mutex);
  (void)pthread_mutex_destroy(&c->service.mutex);
  explicit_bzero(&c->key, sizeof c->key);
  free(c);
}
