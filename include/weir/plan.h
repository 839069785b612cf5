/* The plan: what is done to a gradient in one step.  An immutable value.
 *
 * A plan names a codec, a compression ratio, a collective and a wire format, or the bucket that its
 * quantizer's grids are of.  Its text form is "CODEC:CR:COLLECTIVE[:WIRE]" or
 * "CODEC:CR:COLLECTIVE:bucket=ELEMENTS".  All functions here are pure: any thread may call them at
 * any time.
 *
 * Where the methods come from:
 * - lwtopk, star, var, art-*: Tyagi and Swany, "Flexible Communication for Optimal Distributed
 *   Learning over Unpredictable Networks"
 * - mstopk, hitopk, torus: Shi et al., "Towards Scalable Distributed Training of Deep Learning on
 *   Public Cloud Clusters"
 * - qsgd in buckets, sra: Markov et al., "Project CGX: Algorithmic and System Support for Scalable
 *   Deep Learning on a Budget"
 * - dgc: Lin et al., "Deep Gradient Compression"
 * - sidco: Abdelmoniem et al., "An Efficient Statistical-based Gradient Compression Technique for
 *   Distributed Training Systems"
 * - terngrad, onebit, efsignsgd: Wen et al. 2017; Seide et al. 2014; Karimireddy et al. 2019
 * - minifloat: Horvath et al., "Natural compression for distributed deep learning"
 * - companded: squares as in Wang et al., "4-bit Shampoo for Memory-Efficient Network Training"
 * - powersgd: Vogels et al., "PowerSGD"
 * - bilateral: products with rows and columns as in Zhou and Tao, "Bilateral random projections"
 * - path=: Wang et al., "ByteComp: Revisiting Gradient Compression in Distributed Training" */
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
  /* Encoders: every element in few bits.  What that loses goes to the residual. */
  WEIR_CODEC_FP16 = 7,       /* "fp16":      IEEE half precision, cr 0.5 */
  WEIR_CODEC_QSGD = 8,       /* "qsgd":      buckets on a grid of 2^b values, cr b/32, b = 2..8 */
  WEIR_CODEC_TERNGRAD = 9,   /* "terngrad":  -s, 0 or s, cr 2/32 */
  WEIR_CODEC_ONEBIT = 10,    /* "onebit":    the sign, decoded to the mean of its sign; cr 1/32 */
  WEIR_CODEC_EFSIGNSGD = 11, /* "efsignsgd": sign times mean magnitude, cr 1/32 */
  /* Selections. */
  WEIR_CODEC_DGC = 12,     /* "dgc":     top-k per tensor by a sampled threshold */
  WEIR_CODEC_SIDCO = 13,   /* "sidco":   threshold from a fitted tail, whole gradient */
  WEIR_CODEC_RANDOMK = 14, /* "randomk": drawn at random, the same elements on all ranks, so that no
                              indices travel */
  /* Low rank: a sum that takes two all-reduces. */
  WEIR_CODEC_POWERSGD = 15, /* "powersgd": matrices by rank r, cr r/64, r = 1..64; vectors whole */
  /* qsgd's other modes, as CGX has them: rounding to the nearest value instead of at random, and a
   * grid from the bucket's L2 norm instead of its smallest and largest value. */
  WEIR_CODEC_QSGD_NEAREST = 16,    /* "qsgd-nearest":    cr b/32, b = 2..8 */
  WEIR_CODEC_QSGD_L2 = 17,         /* "qsgd-l2":         b = 4..8; with fewer, residuals grow */
  WEIR_CODEC_QSGD_L2_NEAREST = 18, /* "qsgd-l2-nearest": b = 4..8 */
  /* An encoder of what a step has touched. */
  WEIR_CODEC_NONZERO = 19, /* "nonzero": companded, b = 3..8, or qsgd, b = 2, of the elements whose
                              gradient is not 0; cr b/32 */
  WEIR_CODEC_NONZERO_BF16 = 20, /* "nonzero-bf16": the same in bfloat16, cr 0.5 */
  /* An encoder whose errors are in proportion to the elements. */
  WEIR_CODEC_MINIFLOAT = 21, /* "minifloat": floats of 4 bits of exponent; cr b/32, b = 5..8 */
  /* An encoder whose values lie closer the closer they are to zero. */
  /* "companded": buckets on a grid of squares; cr b/32, b = 3, 3.5, ..., 8 */
  WEIR_CODEC_COMPANDED = 22,
  /* Low rank in one all-reduce. */
  WEIR_CODEC_BILATERAL = 23, /* "bilateral": matrices by rank 2 r, cr r/64, r = 1..32 */
  /* An encoder in units of what each element usually is. */
  WEIR_CODEC_WHITENED = 24, /* "whitened": on an even grid of such units; cr b/32, b = 3..8 */
  /* An encoder whose grid is shifted at random, and shifted back where it is read. */
  WEIR_CODEC_DITHERED = 25, /* "dithered": cr b/32, b = 4..8; with fewer, residuals grow */
  WEIR_CODEC_COUNT = 26
} weir_codec_id;

/* The largest ranks of powersgd and of bilateral. */
#define WEIR_POWERSGD_RANK_MAX 64
#define WEIR_BILATERAL_RANK_MAX 32

/* Schemes: what is done with what a codec makes.  The names of their collectives begin as said. */
typedef enum weir_scheme_id {
  WEIR_SCHEME_DENSE = 0,  /* "dense":      every element is summed */
  WEIR_SCHEME_GATHER = 1, /* "ag":         each rank's kept elements, or its message, are
                                 all-gathered and added up in the order of ranks */
  WEIR_SCHEME_SHARED = 2, /* "art":        the values at indices that all ranks share are summed;
                                 one rank's are broadcast, unless all draw the same */
  WEIR_SCHEME_COMPRESSED = 3, /* "compressed": encoded sums, encoded again on their way (CGX) */
  WEIR_SCHEME_HITOPK = 4,     /* "hitopk":     sums inside machines, their top-k between machines
                                 (HiTopKComm) */
  WEIR_SCHEME_LOW_RANK = 5,   /* "dense":      two thin matrices are summed, one after the other */
  WEIR_SCHEME_PATH = 6, /* "path=":      the tasks that it names, one after the other (ByteComp) */
  WEIR_SCHEME_COUNT = 7
} weir_scheme_id;

/* Algorithms, rows of the tables of collectives.  Of a sum: ring to direct, and native*; of an
 * all-gather: bruck, ring, doubling, direct; of encoded sums: sra, ring, tree, one-shot. */
typedef enum weir_algorithm_id {
  WEIR_ALGORITHM_ANY = 0, /* whichever is the cheapest on the network as it is measured */
  WEIR_ALGORITHM_RING = 1,
  WEIR_ALGORITHM_TREE = 2,        /* binomial */
  WEIR_ALGORITHM_HALVING = 3,     /* recursive halving and doubling */
  WEIR_ALGORITHM_DOUBLE_TREE = 4, /* two binary trees, pipelined */
  WEIR_ALGORITHM_TORUS = 5,       /* rings along rows and columns */
  WEIR_ALGORITHM_STAR = 6,        /* a parameter server on rank 0 */
  WEIR_ALGORITHM_DOUBLING = 7,    /* exchanges of everything, in the fewest rounds */
  WEIR_ALGORITHM_DIRECT = 8,      /* everything from everybody to everybody */
  WEIR_ALGORITHM_NATIVE = 9,      /* the transport's own all-reduce: MPI's, NCCL's or shm's */
  WEIR_ALGORITHM_BRUCK = 10,
  WEIR_ALGORITHM_SRA = 11,      /* scatter-reduce-allgather */
  WEIR_ALGORITHM_CHAIN = 12,    /* a broadcast from rank to rank, in chunks */
  WEIR_ALGORITHM_PAIRWISE = 13, /* a reduce-scatter straight to each rank, and doubling */
  /* NCCL's own all-reduce by the algorithm that its tuner is told (weir/nccl_tuner.h). */
  WEIR_ALGORITHM_NATIVE_RING = 14,
  WEIR_ALGORITHM_NATIVE_TREE = 15, /* a double binary tree */
  WEIR_ALGORITHM_ONE_SHOT = 16,    /* every message straight to everybody, who add all of them */
  WEIR_ALGORITHM_COUNT = 17
} weir_algorithm_id;

/* How kept elements, or codes, are written on the wire. */
typedef enum weir_wire_format {
  WEIR_WIRE_PAPER = 0,     /* "u32-fp32":  8 bytes an element, as in the papers */
  WEIR_WIRE_AUTO_FP32 = 1, /* "auto-fp32": cheapest index encoding, fp32 values */
  WEIR_WIRE_AUTO_BF16 = 2, /* "auto-bf16": cheapest index encoding, bf16 values, low rank's
                              factors too; rounding goes to the residual */
  WEIR_WIRE_AUTO_FP16 = 3, /* "auto-fp16": cheapest index encoding, IEEE half precision values;
                              rounding goes to the residual; with ag only */
  WEIR_WIRE_HUFFMAN = 4,   /* "huffman":   a quantizer's codes by how often they occur, the same
                              values in fewer bytes (Huffman 1952); with ag, sra and
                              hier-sra */
  WEIR_WIRE_COUNT = 5,
  WEIR_WIRE_LISTS = WEIR_WIRE_HUFFMAN /* those before it write kept elements */
} weir_wire_format;

typedef struct weir_plan {
  uint64_t id;     /* sequence number, the same on all ranks; 0 is the first plan */
  uint32_t codec;  /* weir_codec_id */
  uint32_t scheme; /* weir_scheme_id */
  uint32_t wire;   /* weir_wire_format; WEIR_WIRE_PAPER for dense codecs and encoders */
  /* weir_algorithm_id.  WEIR_ALGORITHM_ANY: a session chooses all three, anew when the network
   * has changed, and tells the ranks.  Of a path, algorithm and inside are its tasks. */
  uint8_t algorithm;
  uint8_t inside;    /* not 0: the exchange has two levels; this one inside of machines, the above
                        between them */
  uint8_t broadcast; /* of a list of indices; 0: binomial */
  /* Of qsgd in all its modes: elements that share a grid, as their binary logarithm, 6 (64) to 13
   * (8192); 0: 128, which has no other form. */
  uint8_t bucket_log2;
  /* Compression ratio: the fraction kept, in (0, 1]; 1 for dense codecs, bits an element / 32 for
   * encoders, rank / 64 for powersgd and bilateral. */
  double cr;
  /* 0: the whole gradient at once, as above.  Otherwise the number of buckets, each with its own
   * codec, ratio and collective; the fields above are then the plan that they were made from. */
  uint32_t buckets;
  uint32_t layout; /* weir_buckets_name() of the table of buckets; 0 without buckets */
} weir_plan;

/* Where a bucket's error feedback and compression run. */
typedef enum weir_place {
  WEIR_PLACE_CALLER = 0, /* inside weir_submit of its last tensor, on the trainer's thread */
  WEIR_PLACE_THREAD = 1, /* on a thread of the session, beside the backward pass */
  WEIR_PLACE_COUNT = 2
} weir_place;

/* One bucket of consecutive tensors, in the order in which they were registered.  A table of
 * buckets is an array in that order which covers all tensors; 32 bytes a bucket, as they travel. */
typedef struct weir_plan_bucket {
  uint32_t end; /* one past its last tensor; the bucket begins where the one before it ends */
  uint32_t codec, scheme, wire;                      /* as in weir_plan */
  uint32_t place;                                    /* weir_place */
  uint8_t algorithm, inside, broadcast, bucket_log2; /* as in weir_plan */
  double cr;
} weir_plan_bucket;

/* Longest plan string, and longest name of a collective in it, with its terminating zero. */
#define WEIR_PLAN_TEXT_MAX 80
#define WEIR_COLLECTIVE_TEXT_MAX 40

/* The names above; the library's, NULL when unknown. */
const char *weir_codec_name(uint32_t codec);
const char *weir_wire_name(uint32_t wire);

/* The name of a plan's collective, its scheme and algorithms: SCHEME[-hier][-ALGORITHM][+OTHER],
 * for example "dense-ring", "ag", "art-hier-tree".  "sra", "hier-sra", "native", "native-ring" and
 * "native-tree" stand for compressed-sra, compressed-hier-sra, dense-native and so on.  OTHER is
 * what goes on inside of machines (ring, pairwise, or native: NCCL's all-reduce sums there), where
 * it is not the usual, or "chain" or "direct" for a list's broadcast.  Of a path, "path=TASKS":
 * tasks separated by dots, c compress, d decompress and add up, ar all-reduce, ag all-gather, rs
 * reduce-scatter, r reduce, b broadcast, a2a all-to-all, g gather; one or two communications are
 * among all ranks, three or four inside of machines first and last and between machines meanwhile;
 * a second one pairs with its first (rs, a2a with ag; r, g with b). */
void weir_plan_collective(const weir_plan *plan, char text[WEIR_COLLECTIVE_TEXT_MAX]);

/* WEIR_OK when codec, scheme, algorithms, wire and cr fit together:
 * - dense codecs: dense-*, cr 1; those that send fp32 also native, native-ring and native-tree
 * - selections: ag, and where tensors are not told apart hitopk, cr in (0, 1]
 * - selections whose indices all ranks share: art-*, cr in (0, 1], no auto-fp16; art-native-ring
 *   and art-native-tree with fp32 values
 * - encoders: ag and compressed-*, no wire format, but for huffman, which quantizers with buckets
 *   take with ag, sra and hier-sra; cr is exactly bits an element / 32; qsgd, and it alone, in
 *   buckets of 64 to 8192 elements, a power of two
 * - low rank: dense-*, with auto-bf16 in half the bytes, native* in fp32, and dense-sra and
 *   dense-one-shot, whose sums travel as messages of companded's 5 bits, by huffman, too; cr is
 *   rank / 64, rank 1..64
 * - path=: without c none, with it encoders, and selections that do not tell tensors apart
 *
 * Otherwise WEIR_E_INVALID, and weir_last_error() says what would fit.  Some collectives need more
 * of the group they run in: hitopk several machines, native a transport that has an all-reduce, its
 * ring and tree transport nccl with the tuner plugin.  A session refuses them without it. */
weir_status weir_plan_check(const weir_plan *plan);

/* Parse "CODEC:CR:COLLECTIVE[:WIRE]", for example "star:0.01:art-tree" or "topk:0.02:ag:auto-bf16".
 * For powersgd and bilateral the number is the rank: "powersgd:4:dense-ring"; qsgd may name its
 * bucket, "qsgd:0.125:sra:bucket=1024".  Sets every field; id, buckets and layout become 0.  On bad
 * text it returns WEIR_E_INVALID or WEIR_E_PARSE and leaves *plan unchanged. */
weir_status weir_plan_parse(const char *text, weir_plan *plan);

/* Write the plan string: cr with %.6g, WIRE only when it is not the paper's, a
 * bucket only when it is not 128.  A plan with buckets
 * ends in "/" and their number, which weir_plan_parse does not read. */
void weir_plan_format(const weir_plan *plan, char text[WEIR_PLAN_TEXT_MAX]);

/* 64-bit digest of every field: what each message carries to prove that both ends run the same
 * plan.  Never 0. */
uint64_t weir_plan_digest(const weir_plan *plan);

/* WEIR_OK when the buckets' ends ascend up to `tensors`, and every bucket's codec, collective, wire
 * and ratio fit together; otherwise WEIR_E_INVALID, and weir_last_error() names the bucket. */
weir_status weir_buckets_check(const weir_plan_bucket *buckets, size_t count, size_t tensors);
/* The name of a table in weir_plan.layout: a digest, never 0. */
uint32_t weir_buckets_name(const weir_plan_bucket *buckets, size_t count);
/* Copy codec, collective, wire and ratio from a bucket to a plan, which then has no buckets, or
 * from a plan to a bucket.  The plan's id and the bucket's end and place are not touched. */
void weir_plan_of_bucket(const weir_plan_bucket *bucket, weir_plan *plan);
void weir_bucket_set_plan(weir_plan_bucket *bucket, const weir_plan *plan);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
