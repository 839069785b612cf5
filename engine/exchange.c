#include "engine/state.h"

const weir_exchange weir_exchanges[WEIR_COLL_COUNT] = {
    {WEIR_COLL_DENSE_RING, weir_exchange_dense, WEIR_ALLREDUCE_RING},
    {WEIR_COLL_DENSE_TREE, weir_exchange_dense, WEIR_ALLREDUCE_TREE},
    {WEIR_COLL_AG, weir_exchange_ag, WEIR_ALLREDUCE_RING},
    {WEIR_COLL_ART_RING, weir_exchange_art, WEIR_ALLREDUCE_RING},
    {WEIR_COLL_ART_TREE, weir_exchange_art, WEIR_ALLREDUCE_TREE},
};
