#include "engine/state.h"

const weir_exchange weir_exchanges[WEIR_COLL_COUNT] = {
    {WEIR_COLL_DENSE_RING, weir_prepare_dense, weir_exchange_dense, WEIR_ALLREDUCE_RING},
    {WEIR_COLL_DENSE_TREE, weir_prepare_dense, weir_exchange_dense, WEIR_ALLREDUCE_TREE},
    {WEIR_COLL_AG, weir_prepare_ag, weir_exchange_ag, WEIR_ALLREDUCE_RING},
    {WEIR_COLL_ART_RING, weir_prepare_art, weir_exchange_art, WEIR_ALLREDUCE_RING},
    {WEIR_COLL_ART_TREE, weir_prepare_art, weir_exchange_art, WEIR_ALLREDUCE_TREE},
    {WEIR_COLL_DENSE_HALVING, weir_prepare_dense, weir_exchange_dense, WEIR_ALLREDUCE_HALVING},
    {WEIR_COLL_DENSE_DOUBLE_TREE, weir_prepare_dense, weir_exchange_dense, WEIR_ALLREDUCE_DOUBLE_TREE},
    {WEIR_COLL_DENSE_TORUS, weir_prepare_dense, weir_exchange_dense, WEIR_ALLREDUCE_TORUS},
    {WEIR_COLL_DENSE_STAR, weir_prepare_dense, weir_exchange_dense, WEIR_ALLREDUCE_STAR},
    {WEIR_COLL_ART_HALVING, weir_prepare_art, weir_exchange_art, WEIR_ALLREDUCE_HALVING},
    {WEIR_COLL_ART_DOUBLE_TREE, weir_prepare_art, weir_exchange_art, WEIR_ALLREDUCE_DOUBLE_TREE},
    {WEIR_COLL_ART_TORUS, weir_prepare_art, weir_exchange_art, WEIR_ALLREDUCE_TORUS},
    {WEIR_COLL_ART_STAR, weir_prepare_art, weir_exchange_art, WEIR_ALLREDUCE_STAR},
};
