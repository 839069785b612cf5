/* As much of libcuda.so.1 as tells whose memory something is: an address that is a multiple of 4096
 * is a device's, one that is 64 behind is managed. */

int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer);

int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer) {
  const unsigned long long place = pointer % 4096;
  if (place != 0 && place != 64) return 1; /* nobody's */
  *(unsigned *)data = attribute == 2 ? 2 : place == 64;
  return 0;
}
