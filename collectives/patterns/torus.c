/* The grid of a two-dimensional torus: who is in which row and column. */
#include "collectives/patterns/patterns.h"

int weir_torus_rows(int size, int hosts) {
  if (hosts > 1 && hosts < size && size % hosts == 0) return hosts;
  int rows = 1;
  for (int r = 2; r <= size / r; r++)
    if (size % r == 0) rows = r;
  return rows;
}

weir_torus weir_torus_grid(const int *host, int size, int hosts) {
  const bool aligned = host && hosts > 1 && hosts < size && weir_hosts_even(host, size, hosts);
  const int rows = weir_torus_rows(size, aligned ? hosts : size);
  return (weir_torus){rows, size / rows, aligned ? host : NULL};
}

int weir_torus_rank(const weir_torus *grid, int row, int column) {
  if (!grid->host) return row * grid->columns + column;
  int rank = 0;
  for (int left = column; grid->host[rank] != row || left-- > 0;) rank++;
  return rank;
}

void weir_torus_place(const weir_torus *grid, int rank, int *row, int *column) {
  *row = grid->host ? grid->host[rank] : rank / grid->columns;
  *column = grid->host ? weir_hosts_place(grid->host, rank) : rank % grid->columns;
}
