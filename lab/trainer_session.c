/* What the lab's trainer registers with a session. */
#include "lab/trainer_state.h"

weir_status weir_trainer_register(weir_trainer *trainer, weir_session *session) {
  size_t count = 0;
  float *weights = weir_trainer_weights(trainer, &count);
  weir_status status = weir_register_state(session, "weights", weights, count * sizeof *weights);
  if (status) return status;
  float *momentum = weir_trainer_momentum(trainer, &count);
  status = weir_register_state(session, "momentum", momentum, count * sizeof *momentum);
  float *second = weir_trainer_second(trainer, &count);
  if (!status && count)
    status = weir_register_state(session, "second moment", second, count * sizeof *second);
  const weir_state_hooks hooks = weir_trainer_hooks(trainer);
  return status ? status : weir_register_hooks(session, &hooks);
}
