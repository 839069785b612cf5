/* What workers and the runner tell each other: fixed-size records over a socket pair that keeps
 * their boundaries; the same between processes and between threads. */
#ifndef WEIR_LAB_CHANNEL_H
#define WEIR_LAB_CHANNEL_H

#include <stdint.h>
#include <weir/weir.h>

typedef enum weir_message_kind {
  WEIR_MESSAGE_EPOCH = 1, /* rank 0 -> runner: this epoch begins; set the network, then answer */
  WEIR_MESSAGE_READY = 2, /* runner -> rank 0: the network is set */
  WEIR_MESSAGE_STEP = 3,  /* rank 0 -> runner: one executed step */
  WEIR_MESSAGE_DONE = 4,  /* every rank -> runner: trained to the end */
  WEIR_MESSAGE_ERROR = 5, /* a rank -> runner: why it ends */
  WEIR_MESSAGE_MET = 6,   /* rank 0 without a runner: the group has come together, and over what */
  WEIR_MESSAGE_KEEP = 7   /* rank 0 -> runner: put the steps told on the disk, then answer READY */
} weir_message_kind;

/* One line of steps.csv. */
typedef struct weir_row {
  weir_step_info info;
  uint32_t epoch;       /* as counted in the scenario */
  double loss;          /* of rank 0's batch */
  double accuracy;      /* fraction; NaN: not evaluated after this step */
  double test_loss;     /* with the accuracy; NaN: not evaluated */
  double elapsed_s;     /* when it ended, evaluation excluded */
  double set_latency_s; /* in force; the runner fills both in for a real network */
  double set_bandwidth; /* bytes/s */
} weir_row;

typedef struct weir_message {
  uint32_t kind; /* weir_message_kind */
  uint32_t rank;
  union {
    uint32_t epoch;
    weir_row row;
    char weights_sha256[65];
    char transport[16];
    struct {
      uint32_t status; /* weir_status */
      char text[512];
    } error; /* of READY after KEEP, too */
  } as;
} weir_message;

/* ends[0]: the runner's, ends[1]: the worker's. */
weir_status weir_channel_open(int ends[2]);
/* WEIR_E_TIMEOUT when the other end does not take it, WEIR_E_PEER when it is gone. */
weir_status weir_channel_send(int end, const weir_message *message, double timeout_s);
/* WEIR_E_TIMEOUT when nothing comes, WEIR_E_PEER when the other end is closed, WEIR_E_PROTOCOL on
 * a record that is none. */
weir_status weir_channel_receive(int end, weir_message *message, double timeout_s);

#endif
