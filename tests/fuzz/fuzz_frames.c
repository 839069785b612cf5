/* libFuzzer: what comes over a TCP connection before it is trusted: frames' headers, hellos and
 * survivors' views.  The input is taken as each of them, as it is and with its checksum put right, so
 * that what lies behind the checksum is reached. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/transports/tcp.h"
#include "collectives/transports/tcp_agree.h"
#include "collectives/transports/tcp_hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "fuzz_frames: %s\n", what);
    abort();
  }
}

static void seal(void *block, size_t bytes) {
  const uint32_t sum = htole32(tcp_checksum(block, bytes - sizeof sum));
  memcpy((unsigned char *)block + bytes - sizeof sum, &sum, sizeof sum);
}

static void feed_frame(const tcp_frame *frame, size_t capacity) {
  const weir_tag tag = {le64toh(frame->plan), le64toh(frame->step), le32toh(frame->op), 0};
  size_t length = SIZE_MAX;
  const weir_status status =
      tcp_frame_check(frame, 1, &tag, le32toh(frame->hop), capacity, &length);
  demand(status == WEIR_OK || status == WEIR_E_PROTOCOL || status == WEIR_E_MISMATCH, "status");
  demand(status != WEIR_OK || (length <= capacity && length == le64toh(frame->length) &&
                               le16toh(frame->from) == 1),
         "took a frame that does not fit");
  demand(status == WEIR_OK || length == SIZE_MAX, "told a length with an error");
}

static void feed_hello(const tcp_hello *hello, size_t bytes) {
  const tcp_terms terms = {.job = 7, .generation = 1, .size = 5, .kind = HELLO_MESH, .first = 2,
                           .end = 5};
  const int reason = tcp_hello_judge(hello, bytes, &terms);
  demand(reason >= REFUSE_NOT && reason < REFUSE_COUNT, "reason");
  if (reason != REFUSE_NOT || bytes < sizeof *hello) return;
  const uint32_t rank = le32toh(hello->rank);
  demand(rank >= 2 && rank < 5 && le64toh(hello->job) == 7 && le32toh(hello->size) == 5 &&
             le64toh(hello->generation) == 1 && tcp_hello_is(hello, HELLO_MESH),
         "let in somebody it should not");
}

static void feed_view(const tcp_view *view) {
  if (!tcp_view_is(view, 3, 9)) return;
  const int kind = le16toh(view->kind);
  demand(le64toh(view->generation) == 3 && le32toh(view->size) == 9 &&
             (kind == VIEW_TELL || kind == VIEW_CONFIRM),
         "took a view that does not fit");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tcp_frame frame = {0};
  tcp_hello hello = {0};
  static tcp_view view;
  memset(&view, 0, sizeof view);
  memcpy(&frame, data, size < sizeof frame ? size : sizeof frame);
  memcpy(&hello, data, size < sizeof hello ? size : sizeof hello);
  memcpy(&view, data, size < sizeof view ? size : sizeof view);
  feed_frame(&frame, size);
  feed_hello(&hello, size < sizeof hello ? size : sizeof hello);
  feed_view(&view);
  seal(&frame, sizeof frame);
  seal(&hello, sizeof hello);
  seal(&view, sizeof view);
  feed_frame(&frame, size);
  feed_hello(&hello, sizeof hello);
  feed_view(&view);
  return 0;
}
