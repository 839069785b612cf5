/* What a trial must restore of a trainer, for weir_trainer_register and for tests. */
#ifndef WEIR_LAB_TRAINER_STATE_H
#define WEIR_LAB_TRAINER_STATE_H

#include "lab/trainer.h"

/* Weights, the optimizer's moments: flat arrays in the tensors' order; *count floats, 0: it has
 * none. */
float *weir_trainer_weights(weir_trainer *trainer, size_t *count);
float *weir_trainer_momentum(weir_trainer *trainer, size_t *count);
float *weir_trainer_second(weir_trainer *trainer, size_t *count);
/* RNG, permutation, data cursor and step counter. */
weir_state_hooks weir_trainer_hooks(weir_trainer *trainer);
/* Take what these hooks have saved, in another process: WEIR_E_PARSE if they cannot have. */
weir_status weir_trainer_go_on(weir_trainer *trainer, const void *from);

#endif
