/* Everybody to everybody, each round to another partner. */
#include "collectives/patterns/patterns.h"

int weir_rotation_to(int rank, int size, int round) { return (rank + round) % size; }

int weir_rotation_from(int rank, int size, int round) { return (rank + size - round) % size; }
