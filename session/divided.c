/* Whole steps of LARS and LAMB, each rank moving its share, and weights gathered to where they
 * lie. */
#include <math.h>
#include <stdlib.h>

#include "collectives/comm.h"
#include "session/abi.h"
#include "session/parallel.h"
#include "session/scales.h"

/* --- shares ----------------------------------------------------------------------------------- */

static weir_status sum_of(const size_t *numel, size_t tensors, size_t *all) {
  *all = 0;
  for (size_t t = 0; t < tensors; t++)
    if (__builtin_add_overflow(*all, numel[t], all))
      return weir_fail(WEIR_E_INVALID, "the elements of %zu tensors are more than SIZE_MAX",
                       tensors);
  return WEIR_OK;
}

/* Pieces' begins, as places among all elements. */
static size_t element_at(const weir_scaling *s, size_t piece, size_t all) {
  return piece < s->pieces ? s->piece[piece].begin : all;
}

static weir_status share_of(const weir_scaling *s, size_t all, int rank, int ranks,
                            weir_moment_share *share) {
  size_t *begin = calloc((size_t)ranks + 1, sizeof *begin);
  if (begin == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to divide among %d ranks", ranks);
  weir_divide(s->work, all, s->pieces, ranks, begin);
  share->rank = rank;
  share->world_size = ranks;
  share->room = 0;
  for (int r = 0; r < ranks; r++) {
    const size_t from = element_at(s, begin[r], all);
    const size_t count = element_at(s, begin[r + 1], all) - from;
    if (count > share->room) share->room = count;
    if (r == rank) share->begin = from;
    if (r == rank) share->count = count;
  }
  free(begin);
  return WEIR_OK;
}

weir_status weir_share_moments(const size_t *numel, size_t tensors, int rank, int world_size,
                               weir_moment_share *callers) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_moment_share, second);
  weir_moment_share share = {0};
  weir_scaling s = {.count = tensors};
  size_t all = 0;
  weir_status status = callers != NULL ? weir_abi_take(&known, &share, callers)
                                       : weir_fail(WEIR_E_INVALID, "no moments");
  if (status == WEIR_OK && (rank < 0 || rank >= world_size))
    status = weir_fail(WEIR_E_INVALID, "rank %d of %d", rank, world_size);
  if (status == WEIR_OK && tensors > 0 && numel == NULL)
    status = weir_fail(WEIR_E_INVALID, "the pointer for the tensors' lengths is NULL");
  if (status == WEIR_OK) status = sum_of(numel, tensors, &all);
  if (status == WEIR_OK) status = weir_cut_pieces(&s, numel);
  if (status == WEIR_OK) status = share_of(&s, all, rank, world_size, &share);
  if (status == WEIR_OK) weir_abi_give(callers, &share);
  weir_scaling_free(&s);
  return status;
}

/* --- a step ----------------------------------------------------------------------------------- */

typedef struct divided {
  weir_session *session; /* NULL: alone */
  weir_scaling scaling;
  weir_moment_share moments;
  const weir_moved_tensor *tensors;
  size_t count, all; /* tensors; their elements */
  int rank, ranks;
  size_t *numel, *begin; /* of tensors; of ranks' pieces */
  weir_scaled_tensor *scaled;
  weir_block_part *span; /* a piece each */
  double *scales;
  double momentum;       /* LARS */
  double decay;          /* of tensors that are not plain */
  weir_adam adam, plain; /* LAMB; of plain tensors */
} divided;

static weir_status allocate(divided *d) {
  const size_t n = d->count + 1;
  d->numel = calloc(n, sizeof *d->numel);
  d->scaled = calloc(n, sizeof *d->scaled);
  d->scales = calloc(n, sizeof *d->scales);
  d->begin = calloc((size_t)d->ranks + 1, sizeof *d->begin);
  if (d->numel != NULL && d->scaled != NULL && d->scales != NULL && d->begin != NULL)
    return WEIR_OK;
  return weir_fail(WEIR_E_NOMEM, "no memory to move %zu tensors", d->count);
}

static void release(divided *d) {
  free(d->numel);
  free(d->scaled);
  free(d->scales);
  free(d->begin);
  free(d->span);
  weir_scaling_free(&d->scaling);
}

static weir_status check_rates(const divided *d) {
  for (size_t t = 0; t < d->count; t++)
    if (!isfinite(d->tensors[t].rate))
      return weir_fail(WEIR_E_INVALID, "the learning rate of tensor %zu is not finite", t);
  return WEIR_OK;
}

/* Are these the moments that tensors of these lengths have in this group? */
static weir_status check_moments(const divided *d) {
  const weir_moment_share *m = &d->moments;
  weir_moment_share due = {.struct_size = sizeof due};
  if (m->rank != d->rank || m->world_size != d->ranks)
    return weir_fail(WEIR_E_STATE,
                     "moments were divided for rank %d of %d, and this is rank %d of %d", m->rank,
                     m->world_size, d->rank, d->ranks);
  const weir_status status = weir_share_moments(d->numel, d->count, d->rank, d->ranks, &due);
  if (status != WEIR_OK) return status;
  if (due.begin != m->begin || due.count != m->count)
    return weir_fail(WEIR_E_INVALID,
                     "moments are of elements %zu to %zu, and these tensors' share is %zu to %zu",
                     m->begin, m->begin + m->count, due.begin, due.begin + due.count);
  const bool adam = d->scaling.adam != NULL;
  if (m->count == 0) return WEIR_OK;
  if (m->first == NULL || (adam && m->second == NULL))
    return weir_fail(WEIR_E_INVALID, "the pointer for the moments is NULL");
  const weir_status there = weir_check_memory(d->session, m->first);
  if (there != WEIR_OK) return there;
  if (adam) return weir_check_memory(d->session, m->second);
  return WEIR_OK;
}

/* Everything that can fail without the other ranks. */
static bool on_device(const divided *d) {
  return d->session != NULL && d->session->device_ops != NULL;
}

/* Weights are gathered on the host. */
static weir_status lend_spans(divided *d) {
  const weir_scaling *s = &d->scaling;
  void *lent = NULL;
  const weir_status status = weir_engine_lend(d->session->engine, d->all * sizeof(float), &lent);
  for (size_t i = 0; i < s->pieces && status == WEIR_OK; i++)
    d->span[i].data = (float *)lent + s->piece[i].begin;
  return status;
}

static weir_status prepare(divided *d, const weir_moment_share *callers) {
  static const weir_abi_struct known = WEIR_ABI_STRUCT(weir_moment_share, second);
  weir_session *session = d->session;
  weir_scaling *s = &d->scaling;
  weir_status status = session != NULL ? weir_session_check(session) : WEIR_OK;
  if (status == WEIR_OK && callers == NULL) status = weir_fail(WEIR_E_INVALID, "no moments");
  if (status == WEIR_OK) status = weir_abi_take(&known, &d->moments, callers);
  if (status == WEIR_OK && d->count > 0 && d->tensors == NULL)
    status = weir_fail(WEIR_E_INVALID, "the pointer for the tensors is NULL");
  d->rank = session != NULL && status == WEIR_OK ? session->options.rank : 0;
  d->ranks = session != NULL && status == WEIR_OK ? session->options.world_size : 1;
  if (status == WEIR_OK) status = allocate(d);
  for (size_t t = 0; status == WEIR_OK && t < d->count; t++) {
    d->numel[t] = d->tensors[t].numel;
    d->scaled[t] = (weir_scaled_tensor){
        .numel = d->numel[t], .weight = d->tensors[t].weight, .gradient = d->tensors[t].gradient};
  }
  s->tensors = d->scaled;
  s->count = d->count;
  s->moved = d->tensors;
  s->moments = &d->moments;
  if (status == WEIR_OK) status = check_rates(d);
  if (status == WEIR_OK) status = weir_check_scaling(session, s, d->scales);
  if (status == WEIR_OK) status = check_moments(d);
  if (status == WEIR_OK) status = sum_of(d->numel, d->count, &d->all);
  if (status == WEIR_OK) status = weir_cut_pieces(s, d->numel);
  if (status != WEIR_OK) return status;
  d->span = calloc(s->pieces + 1, sizeof *d->span);
  if (d->span == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu pieces", s->pieces);
  weir_divide(s->work, d->all, s->pieces, d->ranks, d->begin);
  for (size_t i = 0; i < s->pieces; i++)
    d->span[i] = (weir_block_part){d->tensors[s->piece[i].tensor].weight + s->piece[i].at,
                                   s->piece[i].n * sizeof(float)};
  return d->ranks > 1 && on_device(d) ? lend_spans(d) : WEIR_OK;
}

/* Elements [from, from + n) of a piece. */
static weir_mover mover_of(const divided *d, size_t piece, size_t from, size_t n) {
  const weir_cut *cut = &d->scaling.piece[piece];
  const weir_moved_tensor *t = &d->tensors[cut->tensor];
  const size_t own = cut->begin + from - d->moments.begin;
  const bool adam = d->scaling.adam != NULL;
  return (weir_mover){.piece = {.weight = t->weight + cut->at + from,
                                .gradient = t->gradient + cut->at + from,
                                .first = d->moments.first + own,
                                .second = adam ? d->moments.second + own : NULL,
                                .n = n},
                      .rate = (float)(t->plain ? t->rate : t->rate * d->scales[cut->tensor]),
                      .adam = adam,
                      .terms = t->plain ? d->plain : d->adam,
                      .momentum = (float)d->momentum,
                      .weight_decay = (float)(t->plain ? 0 : d->decay)};
}

static void move(void *user, size_t piece, size_t begin, size_t bytes) {
  const weir_mover mover = mover_of(user, piece, begin / sizeof(float), bytes / sizeof(float));
  weir_move(&mover);
}

static weir_status gather(const divided *d, const weir_places *places) {
  const weir_scaling *s = &d->scaling;
  const uint64_t form = weir_hash(WEIR_HASH_INIT, s->work, s->pieces * sizeof *s->work);
  return weir_parallel_places(d->session, form, places,
                              (d->all / (size_t)d->ranks + WEIR_PIECE) * sizeof(float));
}

static weir_status move_here(divided *d) {
  const weir_scaling *s = &d->scaling;
  const weir_places places = {d->span, d->begin, move, d};
  if (d->ranks > 1) return gather(d, &places);
  for (size_t i = 0; i < s->pieces; i++) move(d, i, 0, d->span[i].bytes);
  return WEIR_OK;
}

/* --- on a device ------------------------------------------------------------------------------ */

/* Pieces [first, end) between the device and the host; those of a tensor lie one behind the
 * other. */
static weir_status copy(const divided *d, size_t first, size_t end, bool in) {
  const weir_scaling *s = &d->scaling;
  weir_status status = WEIR_OK;
  for (size_t i = first, next; i < end && status == WEIR_OK; i = next) {
    const weir_cut *cut = &s->piece[i];
    float *const there = d->tensors[cut->tensor].weight + cut->at, *const here = d->span[i].data;
    size_t n = 0;
    for (next = i; next < end && s->piece[next].tensor == cut->tensor; next++)
      n += s->piece[next].n;
    status = weir_engine_copy(d->session->engine, in ? there : here, in ? here : there,
                              n * sizeof(float));
  }
  return status;
}

static weir_status move_own(const divided *d, size_t first, size_t end) {
  weir_mover *movers = calloc(end - first + 1, sizeof *movers);
  if (movers == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %zu pieces", end - first);
  for (size_t i = first; i < end; i++) movers[i - first] = mover_of(d, i, 0, d->scaling.piece[i].n);
  const weir_status status = weir_engine_move(d->session->engine, movers, end - first);
  free(movers);
  return status;
}

/* This rank's share is where it was, and on the host where others are to have it. */
static weir_status make_share(const divided *d, size_t first, size_t end) {
  weir_status status = move_own(d, first, end);
  if (d->ranks == 1) return status;
  if (status == WEIR_OK) status = copy(d, first, end, false);
  if (status == WEIR_OK) status = weir_engine_copied(d->session->engine);
  /* The others wait for it. */
  return status == WEIR_OK ? WEIR_OK : weir_comm_refuse(d->session->comm, d->rank, status);
}

static weir_status move_there(divided *d) {
  const weir_places places = {d->span, d->begin, NULL, NULL};
  const weir_engine *engine = d->session->engine;
  const size_t first = d->begin[d->rank], end = d->begin[d->rank + 1];
  weir_status status = make_share(d, first, end);
  if (status != WEIR_OK || d->ranks == 1) return status;
  status = gather(d, &places);
  if (status == WEIR_OK) status = copy(d, 0, first, true);
  if (status == WEIR_OK) status = copy(d, end, d->scaling.pieces, true);
  return status == WEIR_OK ? weir_engine_copied(engine) : status;
}

static weir_status move_all(divided *d) { return on_device(d) ? move_there(d) : move_here(d); }

weir_status weir_lars_step(weir_session *session, const weir_lars *callers, double momentum,
                           const weir_moved_tensor *tensors, size_t count,
                           weir_moment_share *moments) {
  divided d = {.session = session, .tensors = tensors, .count = count, .momentum = momentum};
  weir_lars lars = {0};
  weir_status status = weir_take_lars(callers, &lars);
  if (status == WEIR_OK) status = weir_check_beta(momentum);
  if (status == WEIR_OK) status = prepare(&d, moments);
  d.decay = lars.weight_decay;
  if (status == WEIR_OK) status = weir_scale_lars(session, &lars, &d.scaling, d.scales);
  if (status == WEIR_OK) status = move_all(&d);
  release(&d);
  return status;
}

weir_status weir_lamb_step(weir_session *session, const weir_lamb *callers,
                           const weir_moved_tensor *tensors, size_t count,
                           weir_moment_share *moments) {
  divided d = {.session = session, .tensors = tensors, .count = count};
  weir_lamb lamb = {0};
  weir_status status = weir_take_lamb(callers, &lamb);
  d.scaling.adam = &d.adam;
  if (status == WEIR_OK) status = prepare(&d, moments);
  if (status == WEIR_OK) {
    d.adam = weir_adam_terms(lamb.beta1, lamb.beta2, lamb.epsilon, lamb.weight_decay, lamb.step);
    d.plain = weir_adam_terms(lamb.beta1, lamb.beta2, lamb.epsilon, 0, lamb.step);
    status = weir_scale_lamb(session, &lamb, &d.scaling, d.scales);
  }
  if (status == WEIR_OK) status = move_all(&d);
  release(&d);
  return status;
}
