/* Which ranks share a machine. */
#include "collectives/patterns/patterns.h"

int weir_hosts_group(const uint64_t *identity, int size, int *host) {
  int hosts = 0;
  for (int r = 0; r < size; r++) {
    int known = 0;
    while (known < r && identity[known] != identity[r]) known++;
    host[r] = known < r ? host[known] : hosts++;
  }
  return hosts;
}

int weir_hosts_members(const int *host, int size, int which, int *member) {
  int members = 0;
  for (int r = 0; r < size; r++)
    if (host[r] == which) member[members++] = r;
  return members;
}

int weir_hosts_column(const int *host, int size, int hosts, int place, int *member) {
  int members = 0;
  for (int h = 0; h < hosts; h++) {
    int before = 0;
    for (int r = 0; r < size; r++)
      if (host[r] == h && before++ == place) member[members++] = r;
  }
  return members;
}

int weir_hosts_place(const int *host, int rank) {
  int place = 0;
  for (int r = 0; r < rank; r++) place += host[r] == host[rank];
  return place;
}

int weir_hosts_largest(const int *host, int size, int hosts) {
  int largest = 0;
  for (int h = 0; h < hosts; h++) {
    int members = 0;
    for (int r = 0; r < size; r++) members += host[r] == h;
    if (members > largest) largest = members;
  }
  return largest;
}

bool weir_hosts_even(const int *host, int size, int hosts) {
  return weir_hosts_largest(host, size, hosts) * hosts == size;
}
