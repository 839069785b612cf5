# Ports for scripts that start ranks: free_port prints one of the loopback's, from those that the kernel does not
# hand out by itself.  Somebody may take it before a rank does, so whoever can tries again.
free_port() {
  local low=32768 high=60999 first=10000 count port tries
  read -r low high 2>/dev/null </proc/sys/net/ipv4/ip_local_port_range
  count=$((low - first))
  ((65535 - high > count)) && first=$((high + 1)) count=$((65535 - high))
  ((count >= 1000)) || first=10000 count=55536
  for tries in {1..100}; do
    port=$((first + (RANDOM * 32768 + RANDOM) % count))
    grep -qs "^ *[0-9]*: [0-9A-F]*:$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6 && continue
    echo $port
    return
  done
  echo "no port is free after $tries tries" >&2
  return 1
}
