/* mpirun -n 2 mpi_cache: a cache of samples over MPI, which has no addresses of its own.  Prints
 * "rank R: ok", or what is wrong and exits with 1. */
#include <arpa/inet.h>
#include <weir/cache.h>

#include "cache/cache.h"
#include "mpi_check.h"

static int read_byte(void *user, uint64_t index, void *buffer, size_t *bytes) {
  (void)user;
  *bytes = 1;
  *(unsigned char *)buffer = (unsigned char)(3 * index + 1);
  return 0;
}

/* Opens a cache of two samples, each read by one rank, and takes both; *places: where the ranks
 * serve.  Collective. */
static weir_status take_both(bool apart, const char *secret, const char *bind_address,
                             struct in_addr places[2]) {
  weir_options options;
  weir_session *session = NULL;
  weir_cache *cache = NULL;
  weir_cache_options of;
  (void)setenv("WEIR_HOST", apart && launch.rank > 0 ? "other" : "one", 1);
  weir_options_init(&options);
  CHECK(weir_options_from_environment(&options, &launch) == WEIR_OK, "options");
  options.transport = "mpi";
  options.secret = secret;
  options.timeout_s = 20;
  options.active_probes = false;
  CHECK(weir_session_create(&session, &options) == WEIR_OK, "create");
  CHECK(weir_register_tensor(session, "w", 50, NULL) == WEIR_OK, "register");
  CHECK(weir_session_start(session) == WEIR_OK, "start");
  weir_cache_options_init(&of);
  of.samples = 2;
  of.sample_bytes = 1;
  of.read = read_byte;
  of.bind_address = bind_address;
  const weir_status status = weir_cache_open(&cache, session, &of);
  for (uint64_t i = 0; i < 2 && status == WEIR_OK; i++) {
    unsigned char byte = 0;
    size_t bytes = 0;
    CHECK(weir_cache_get(cache, i, &byte, 1, &bytes) == WEIR_OK && byte == 3 * i + 1, "sample");
    places[i] = cache->peer[i].address.sin_addr;
  }
  uint64_t all[2], mine = 1; /* until both have taken theirs */
  CHECK(weir_allgather_bytes(session, &mine, sizeof mine, all) == WEIR_OK, "meet");
  weir_cache_close(cache);
  weir_session_free(session);
  return status;
}

static bool on_loopback(struct in_addr at) { return ntohl(at.s_addr) >> 24 == 127; }

int main(void) {
  static const char secret[] = "no stranger knows this";
  struct in_addr place[2] = {{0}, {0}};
  (void)alarm(200);
  CHECK(weir_launch_read(&launch) == WEIR_OK, "launch");
  CHECK(take_both(false, NULL, NULL, place) == WEIR_OK && on_loopback(place[0]), "one machine");
  /* The loopback of another machine is not reached. */
  CHECK(take_both(true, NULL, NULL, place) == WEIR_E_UNSUPPORTED, "no secret");
  CHECK(said("secret") || said("bind_address"), "why?");
  const weir_status status = take_both(true, secret, NULL, place);
  if (status == WEIR_OK)
    CHECK(!on_loopback(place[0]) && !on_loopback(place[1]), "nobody else reaches the loopback");
  else
    CHECK(status == WEIR_E_UNSUPPORTED && said("bind_address"), "why?");
  CHECK(take_both(true, secret, "127.0.0.1", place) == WEIR_OK, "as it was told");
  printf("rank %d: ok\n", launch.rank);
  return 0;
}
