/* The plan: what is done to a gradient in one step.  An immutable value. */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include <stddef.h>
#include <stdint.h>
#include <weir/status.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Codecs.  The names in comments are those of plan strings and tables. */
typedef enum weir_codec_id {
  WEIR_CODEC_NONE = 0,   /* "none":   fp32, dense */
  WEIR_CODEC_BF16 = 1,   /* "bf16":   bfloat16 on the wire, dense; rounding goes to the residual */
  WEIR_CODEC_LWTOPK = 2, /* "lwtopk": top-k per tensor */
  WEIR_CODEC_MSTOPK = 3, /* "mstopk": threshold search over the whole gradient */
  WEIR_CODEC_TOPK = 4,   /* "topk":   exact top-k of the whole gradient */
  WEIR_CODEC_STAR = 5,   /* "star":   top-k indices of rank (step mod N) */
  WEIR_CODEC_VAR = 6,    /* "var":    top-k indices of the rank of largest variance */
  /* Encoders: every element in few bits, what that loses goes to the residual; all-gathered. */
  WEIR_CODEC_FP16 = 7,       /* "fp16":      IEEE half precision, cr 0.5 */
  WEIR_CODEC_QSGD = 8,       /* "qsgd":      buckets on a grid of 2^b values, cr b/32, b = 2..8 */
  WEIR_CODEC_TERNGRAD = 9,   /* "terngrad":  -s, 0 or s, cr 2/32 */
  WEIR_CODEC_ONEBIT = 10,    /* "onebit":    sign, with the mean of either sign; cr 1/32 */
  WEIR_CODEC_EFSIGNSGD = 11, /* "efsignsgd": sign times mean magnitude, cr 1/32 */
  /* Selections. */
  WEIR_CODEC_DGC = 12,     /* "dgc":     top-k per tensor by a sampled threshold */
  WEIR_CODEC_SIDCO = 13,   /* "sidco":   threshold from a fitted tail, whole gradient */
  WEIR_CODEC_RANDOMK = 14, /* "randomk": drawn, the same on all ranks; no indices on the wire */
  /* Sums that take two all-reduces. */
  WEIR_CODEC_POWERSGD = 15, /* "powersgd": matrices by rank r, cr r/64, r = 1..64; dense */
  /* qsgd's other ways, as CGX has them: rounding to the nearest value instead of drawing, and a
   * grid from the bucket's L2 norm instead of its smallest and largest. */
  WEIR_CODEC_QSGD_NEAREST = 16,    /* "qsgd-nearest":    cr b/32, b = 2..8 */
  WEIR_CODEC_QSGD_L2 = 17,         /* "qsgd-l2":         b = 4..8; below, residuals would grow */
  WEIR_CODEC_QSGD_L2_NEAREST = 18, /* "qsgd-l2-nearest": b = 4..8 */
  WEIR_CODEC_COUNT = 19
} weir_codec_id;

/* The largest rank of powersgd. */
#define WEIR_POWERSGD_RANK_MAX 64

/* Ways to exchange it. */
typedef enum weir_collective_id {
  WEIR_COLL_DENSE_RING = 0,  /* "dense-ring": ring all-reduce of all elements */
  WEIR_COLL_DENSE_TREE = 1,  /* "dense-tree": tree all-reduce of all elements */
  WEIR_COLL_AG = 2,          /* "ag":         all-gather of each rank's kept elements */
  WEIR_COLL_ART_RING = 3,    /* "art-ring":   broadcast of one rank's indices + ring all-reduce */
  WEIR_COLL_ART_TREE = 4,    /* "art-tree":   broadcast of one rank's indices + tree all-reduce */
  WEIR_COLL_PAPER_COUNT = 5, /* those above are in the papers' cost model */
  /* The same with other all-reduces. */
  WEIR_COLL_DENSE_HALVING = 5,     /* "dense-halving":     recursive halving and doubling */
  WEIR_COLL_DENSE_DOUBLE_TREE = 6, /* "dense-double-tree": two binary trees, pipelined */
  WEIR_COLL_DENSE_TORUS = 7,       /* "dense-torus":       rings along rows and columns */
  WEIR_COLL_DENSE_STAR = 8,        /* "dense-star":        a parameter server on rank 0 */
  WEIR_COLL_ART_HALVING = 9,       /* "art-halving" */
  WEIR_COLL_ART_DOUBLE_TREE = 10,  /* "art-double-tree" */
  WEIR_COLL_ART_TORUS = 11,        /* "art-torus" */
  WEIR_COLL_ART_STAR = 12,         /* "art-star" */
  /* The same inside of every machine and between machines. */
  WEIR_COLL_DENSE_HIER_RING = 13,        /* "dense-hier-ring" */
  WEIR_COLL_DENSE_HIER_TREE = 14,        /* "dense-hier-tree" */
  WEIR_COLL_DENSE_HIER_HALVING = 15,     /* "dense-hier-halving" */
  WEIR_COLL_DENSE_HIER_DOUBLE_TREE = 16, /* "dense-hier-double-tree" */
  WEIR_COLL_ART_HIER_RING = 17,          /* "art-hier-ring" */
  WEIR_COLL_ART_HIER_TREE = 18,          /* "art-hier-tree" */
  WEIR_COLL_ART_HIER_HALVING = 19,       /* "art-hier-halving" */
  WEIR_COLL_ART_HIER_DOUBLE_TREE = 20,   /* "art-hier-double-tree" */
  WEIR_COLL_HITOPK =
      21, /* "hitopk": sum inside of machines, top-k of it between them (HiTopKComm) */
  /* Sums of encoders' messages, encoded again on their way (CGX). */
  WEIR_COLL_SRA = 22,             /* "sra": scatter-reduce-allgather */
  WEIR_COLL_COMPRESSED_RING = 23, /* "compressed-ring" */
  WEIR_COLL_COMPRESSED_TREE = 24, /* "compressed-tree" */
  WEIR_COLL_NATIVE = 25, /* "native": the all-reduce of the library below, MPI's or NCCL's */
  WEIR_COLL_COUNT = 26
} weir_collective_id;

/* How kept elements are written on the wire. */
typedef enum weir_wire_format {
  WEIR_WIRE_PAPER = 0,     /* "u32-fp32":  8 bytes an element, as in the papers */
  WEIR_WIRE_AUTO_FP32 = 1, /* "auto-fp32": cheapest index encoding, fp32 values */
  WEIR_WIRE_AUTO_BF16 = 2, /* "auto-bf16": cheapest index encoding, bf16 values; rounding goes to
                              the residual */
  WEIR_WIRE_AUTO_FP16 = 3, /* "auto-fp16": cheapest index encoding, IEEE half precision values;
                              rounding goes to the residual; with ag only */
  WEIR_WIRE_COUNT = 4
} weir_wire_format;

typedef struct weir_plan {
  uint64_t id;         /* sequence number, the same on all ranks; 0 is the first plan */
  uint32_t codec;      /* weir_codec_id */
  uint32_t collective; /* weir_collective_id */
  uint32_t wire;       /* weir_wire_format; WEIR_WIRE_PAPER for dense codecs and encoders */
  double cr;           /* compression ratio: fraction kept, in (0, 1]; 1 for dense codecs; bits an
                          element / 32 for encoders, rank / 64 for powersgd */
  uint32_t
      groups; /* 0: the whole gradient at once, as above.  Else so many groups, each with codec,
                 ratio and collective of its own; the above is then what they come from */
  uint32_t layout; /* weir_groups_name() of the table of groups; 0 without groups */
} weir_plan;

/* Where a group is fed and compressed. */
typedef enum weir_place {
  WEIR_PLACE_CALLER = 0, /* inside weir_submit of its last tensor, on the trainer's thread */
  WEIR_PLACE_THREAD = 1, /* on a thread of the session's own, beside the backward pass */
  WEIR_PLACE_COUNT = 2
} weir_place;

/* One group of consecutive tensors, in the order in which they were registered.  A table of groups
 * is an array in that order which covers all tensors; 32 bytes a group, as they travel. */
typedef struct weir_plan_group {
  uint32_t end; /* one past its last tensor; the group begins where the one before it ends */
  uint32_t codec, collective, wire; /* as in weir_plan */
  uint32_t place;                   /* weir_place */
  uint32_t reserved;                /* 0 */
  double cr;
} weir_plan_group;

/* Longest plan string with its terminating zero. */
#define WEIR_PLAN_TEXT_MAX 64

const char *weir_codec_name(uint32_t codec);           /* NULL when unknown */
const char *weir_collective_name(uint32_t collective); /* NULL when unknown */
const char *weir_wire_name(uint32_t wire);             /* NULL when unknown */

/* WEIR_OK when codec, collective, wire and cr fit together:
 * none and bf16 go with the dense- collectives at cr 1, none with native too; lwtopk, mstopk, topk,
 * dgc and sidco with ag, and mstopk, topk and sidco with hitopk; star, var and randomk with the
 * art- ones; cr in (0, 1].  Encoders go with ag, sra and the compressed- ones, take no wire format,
 * and their cr is bits per element / 32, exactly: fp16 0.5, qsgd and qsgd-nearest b/32 with b
 * = 2..8 (4 bits: 0.125), qsgd-l2 and qsgd-l2-nearest with b = 4..8, terngrad 0.0625, onebit and
 * efsignsgd 0.03125.  powersgd goes with dense-ring and its like and native, takes no wire format,
 * and its cr is rank / 64 for a rank of 1..64. Otherwise WEIR_E_INVALID, and weir_last_error() says
 * what would fit.  Some collectives need more of the group they run in: hitopk several machines,
 * native a transport whose library has an all-reduce; a session refuses them without. */
weir_status weir_plan_check(const weir_plan *plan);

/* Parse "CODEC:CR:COLLECTIVE[:WIRE]", e.g. "star:0.01:art-tree" or "topk:0.02:ag:auto-bf16".
 * For powersgd the number is the rank: "powersgd:4:dense-ring".
 * Sets every field but id (set to 0).  WEIR_E_INVALID or WEIR_E_PARSE on bad text, *plan is then
 * unchanged. */
weir_status weir_plan_parse(const char *text, weir_plan *plan);

/* Write the plan string (with %.6g for cr; WIRE only when it is not the paper's; "/GROUPS" behind
 * it when there are groups, which weir_plan_parse does not take). */
void weir_plan_format(const weir_plan *plan, char text[WEIR_PLAN_TEXT_MAX]);

/* 64-bit digest of every field: what each message carries to prove that both ends run the same
 * plan.  Never 0. */
uint64_t weir_plan_digest(const weir_plan *plan);

/* WEIR_OK when the ends ascend to `tensors` and every group's codec, collective, wire and ratio fit
 * together; otherwise WEIR_E_INVALID, and weir_last_error() names the group. */
weir_status weir_groups_check(const weir_plan_group *groups, size_t count, size_t tensors);
/* What a table is called in weir_plan.layout.  Never 0. */
uint32_t weir_groups_name(const weir_plan_group *groups, size_t count);
/* A group's own plan, and the other way round; id, and place and end, are not touched. */
void weir_group_plan(const weir_plan_group *group, weir_plan *plan);
void weir_group_set_plan(weir_plan_group *group, const weir_plan *plan);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
