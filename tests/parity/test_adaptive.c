/* Pieces of LARS and LAMB against the scalar code: squares, and steps, bit for bit. */
#include "kernels/adaptive.h"
#include "parity.h"

/* None, one, around the lanes of a sum and the windows of a step's, and more of these than a block
 * has groups for. */
static const size_t lengths[] = {0,   1,    15,   16,   17,    255,   256,
                                 257, 1023, 1024, 1025, 16384, 16385, 65536};
enum { PIECES = sizeof lengths / sizeof *lengths, ALL = 110000 };

typedef struct state {
  float *data[4]; /* weights, gradients, moments */
} state;

static void fill(state *s, weir_rng *rng, size_t k) {
  for (size_t i = 0; i < 4; i++) {
    s->data[i] = array(ALL, sizeof(float));
    fill_shape(rng, (int)((i + k) % SHAPES), s->data[i], ALL);
    for (size_t j = 0; i == 3 && j < ALL; j++) s->data[i][j] = fabsf(s->data[i][j]);
  }
}

static void forget(const state *s) {
  for (size_t i = 0; i < 4; i++) free(s->data[i]);
}

/* One behind the other, an element apart. */
static void cut(const state *s, weir_tensor_piece *piece) {
  for (size_t p = 0, at = 0; p < PIECES; at += lengths[p++] + 1)
    piece[p] = (weir_tensor_piece){s->data[0] + at, s->data[1] + at, s->data[2] + at,
                                   s->data[3] + at, lengths[p]};
}

Test(parity_adaptive, squares_of_pieces_are_equal) {
  OPENED weir_cuda *cuda = open_cuda(ALL, 0);
  weir_rng rng = weir_rng_of(91);
  const weir_adam adam = weir_adam_terms(0.9, 0.999, 1e-6, 0.01, 3);
  for (size_t k = 0; k < SHAPES; k++) {
    state host, there;
    device_buffer data[4];
    weir_tensor_piece piece[PIECES], table[PIECES];
    weir_squares got[PIECES];
    fill(&host, &rng, k);
    if (k == 1) host.data[0][300] = NAN;
    for (size_t i = 0; i < 4; i++) {
      data[i] = put(cuda, host.data[i], ALL * sizeof(float), 4 * ((i + k) % 4));
      there.data[i] = data[i].data;
    }
    cut(&host, piece);
    cut(&there, table);
    LENT device_buffer pieces = put(cuda, table, sizeof table, 0);
    for (int lamb = 0; lamb < 2; lamb++) {
      LENT device_buffer out = take(cuda, sizeof got, 0);
      must(weir_cuda_piece_squares(cuda, pieces.data, PIECES, lamb ? &adam : NULL, out.data));
      get(cuda, got, out, sizeof got);
      for (size_t p = 0; p < PIECES; p++) {
        const weir_squares due =
            lamb ? weir_lamb_squares(&piece[p], &adam) : weir_lars_squares(&piece[p]);
        cr_assert(got[p].weight == due.weight || (isnan(got[p].weight) && isnan(due.weight)),
                  "%s, %zu elements: %a, not %a", shape_name((int)k), lengths[p], got[p].weight,
                  due.weight);
        cr_assert(got[p].step == due.step || (isnan(got[p].step) && isnan(due.step)),
                  "%s, %d, %zu elements: %a, not %a", shape_name((int)k), lamb, lengths[p],
                  got[p].step, due.step);
      }
    }
    for (size_t i = 0; i < 4; i++) weir_cuda_release(cuda, data[i].block);
    forget(&host);
  }
  must(weir_cuda_piece_squares(cuda, NULL, 0, NULL, NULL));
}

Test(parity_adaptive, steps_are_equal) {
  OPENED weir_cuda *cuda = open_cuda(ALL, 0);
  weir_rng rng = weir_rng_of(92);
  FREED float *const got = array(ALL, sizeof *got);
  for (size_t k = 0; k < SHAPES; k++) {
    state host, there;
    device_buffer data[4];
    weir_tensor_piece piece[PIECES];
    weir_mover mover[PIECES], table[PIECES];
    fill(&host, &rng, k);
    for (size_t i = 0; i < 4; i++) {
      data[i] = put(cuda, host.data[i], ALL * sizeof(float), 4 * ((i + k) % 4));
      there.data[i] = data[i].data;
    }
    cut(&host, piece);
    for (size_t p = 0; p < PIECES; p++) {
      const bool adam = (p + k) % 2 == 0;
      const size_t at = (size_t)(piece[p].weight - host.data[0]);
      mover[p] = (weir_mover){.piece = {host.data[0] + at, host.data[1] + at, host.data[2] + at,
                                        adam ? host.data[3] + at : NULL, lengths[p]},
                              .rate = 0.01F * (float)(p + 1),
                              .adam = adam,
                              .terms = weir_adam_terms(0.9, 0.999, 1e-6, p % 3 == 0 ? 0 : 0.01, k),
                              .momentum = 0.9F,
                              .weight_decay = 1e-4F};
      table[p] = mover[p];
      table[p].piece.weight = there.data[0] + at;
      table[p].piece.gradient = there.data[1] + at;
      table[p].piece.first = there.data[2] + at;
      table[p].piece.second = adam ? there.data[3] + at : NULL;
      weir_move(&mover[p]);
    }
    LENT device_buffer movers = put(cuda, table, sizeof table, 0);
    must(weir_cuda_move(cuda, movers.data, PIECES));
    for (size_t i = 0; i < 4; i++) {
      get(cuda, got, data[i], ALL * sizeof *got);
      same_floats(got, host.data[i], ALL, shape_name((int)k));
      weir_cuda_release(cuda, data[i].block);
    }
    forget(&host);
  }
  must(weir_cuda_move(cuda, NULL, 0));
}
