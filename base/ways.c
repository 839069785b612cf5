#include "base/ways.h"

#include <stddef.h>

const weir_way_row weir_ways[WEIR_COLL_COUNT] = {
    [WEIR_COLL_DENSE_RING] = {"dense-ring", WEIR_WAY_DENSE, "ring", false},
    [WEIR_COLL_DENSE_TREE] = {"dense-tree", WEIR_WAY_DENSE, "tree", false},
    [WEIR_COLL_AG] = {"ag", WEIR_WAY_AG, NULL, false},
    [WEIR_COLL_ART_RING] = {"art-ring", WEIR_WAY_ART, "ring", false},
    [WEIR_COLL_ART_TREE] = {"art-tree", WEIR_WAY_ART, "tree", false},
    [WEIR_COLL_DENSE_HALVING] = {"dense-halving", WEIR_WAY_DENSE, "halving", false},
    [WEIR_COLL_DENSE_DOUBLE_TREE] = {"dense-double-tree", WEIR_WAY_DENSE, "double-tree", false},
    [WEIR_COLL_DENSE_TORUS] = {"dense-torus", WEIR_WAY_DENSE, "torus", false},
    [WEIR_COLL_DENSE_STAR] = {"dense-star", WEIR_WAY_DENSE, "star", false},
    [WEIR_COLL_ART_HALVING] = {"art-halving", WEIR_WAY_ART, "halving", false},
    [WEIR_COLL_ART_DOUBLE_TREE] = {"art-double-tree", WEIR_WAY_ART, "double-tree", false},
    [WEIR_COLL_ART_TORUS] = {"art-torus", WEIR_WAY_ART, "torus", false},
    [WEIR_COLL_ART_STAR] = {"art-star", WEIR_WAY_ART, "star", false},
    [WEIR_COLL_DENSE_HIER_RING] = {"dense-hier-ring", WEIR_WAY_DENSE, "hier-ring", false},
    [WEIR_COLL_DENSE_HIER_TREE] = {"dense-hier-tree", WEIR_WAY_DENSE, "hier-tree", false},
    [WEIR_COLL_DENSE_HIER_HALVING] = {"dense-hier-halving", WEIR_WAY_DENSE, "hier-halving", false},
    [WEIR_COLL_DENSE_HIER_DOUBLE_TREE] = {"dense-hier-double-tree", WEIR_WAY_DENSE,
                                          "hier-double-tree", false},
    [WEIR_COLL_ART_HIER_RING] = {"art-hier-ring", WEIR_WAY_ART, "hier-ring", false},
    [WEIR_COLL_ART_HIER_TREE] = {"art-hier-tree", WEIR_WAY_ART, "hier-tree", false},
    [WEIR_COLL_ART_HIER_HALVING] = {"art-hier-halving", WEIR_WAY_ART, "hier-halving", false},
    [WEIR_COLL_ART_HIER_DOUBLE_TREE] = {"art-hier-double-tree", WEIR_WAY_ART, "hier-double-tree",
                                        false},
    [WEIR_COLL_HITOPK] = {"hitopk", WEIR_WAY_HITOPK, NULL, false},
    [WEIR_COLL_SRA] = {"sra", WEIR_WAY_COMPRESSED, "sra", false},
    [WEIR_COLL_COMPRESSED_RING] = {"compressed-ring", WEIR_WAY_COMPRESSED, "ring", false},
    [WEIR_COLL_COMPRESSED_TREE] = {"compressed-tree", WEIR_WAY_COMPRESSED, "tree", false},
    [WEIR_COLL_HIER_SRA] = {"hier-sra", WEIR_WAY_COMPRESSED, "hier-sra", false},
    [WEIR_COLL_NATIVE] = {"native", WEIR_WAY_DENSE, "native", true},
};

const char *weir_collective_name(uint32_t collective) {
  return collective < WEIR_COLL_COUNT ? weir_ways[collective].name : NULL;
}
