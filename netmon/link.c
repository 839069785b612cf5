/* Network interfaces, by the helper program: which one has an address, and how many bytes it has
 * sent. */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "netmon/helper.h"

_Static_assert(IFNAMSIZ == sizeof(((weir_helper_reply *)0)->name), "room for an interface's name");

/* The kernel answers at once.  Steps wait for it, so that an answer that takes long is not waited
 * for: the next look has another. */
#define ANSWER_S 0.1

weir_status weir_link_bytes(weir_helper *helper, const char *interface_name, uint64_t *sent) {
  weir_helper_request request = {.what = WEIR_HELPER_LINK_BYTES, .timeout_s = ANSWER_S};
  weir_helper_reply reply;
  if (!interface_name || !*interface_name || strlen(interface_name) >= IFNAMSIZ)
    return weir_fail(WEIR_E_INVALID, "not the name of an interface");
  (void)snprintf(request.name, sizeof request.name, "%s", interface_name);
  const weir_status status = weir_helper_ask(helper, &request, 0, &reply);
  if (status == WEIR_OK) *sent = reply.bytes;
  return status;
}

weir_status weir_link_of_address(weir_helper *helper, const char *address, char name[16]) {
  weir_helper_request request = {.what = WEIR_HELPER_LINK_OF, .timeout_s = 2};
  weir_helper_reply reply;
  struct in_addr wanted;
  if (!address || strlen(address) >= sizeof request.name ||
      inet_pton(AF_INET, address, &wanted) != 1)
    return weir_fail(WEIR_E_INVALID, "'%.64s' is not an IPv4 address", address ? address : "");
  (void)snprintf(request.name, sizeof request.name, "%s", address);
  const weir_status status = weir_helper_ask(helper, &request, 1, &reply);
  if (status == WEIR_OK) memcpy(name, reply.name, sizeof reply.name);
  return status;
}
