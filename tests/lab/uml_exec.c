/* Run a command inside User-Mode Linux, for test scripts:
 *   uml_exec [-p] [-o OUT] [-m MIB] [-t SECONDS] [-c CLOCK] [-l] COMMAND [ARGUMENT...]
 * -p: the arguments may name files of the host's.  -l: through the line function, each line marked
 * "out: " or "err: ".  Exits with the command's code, 77 when the machine cannot, 124 after the
 * time-out, 125 on other failures. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lab/uml.h"

static void line(void *user, bool is_error, const char *text) {
  (void)user;
  printf("%s: %s\n", is_error ? "err" : "out", text);
  (void)fflush(stdout);
}

int main(int argc, char **argv) {
  weir_uml_config config = {.timeout_s = 600};
  bool paths = false;
  int option;
  while ((option = getopt(argc, argv, "+po:m:t:c:l")) != -1) switch (option) {
      case 'p': paths = true; break;
      case 'o': config.out = optarg; break;
      case 'm': config.memory_mib = (size_t)strtoul(optarg, NULL, 10); break;
      case 't': config.timeout_s = strtod(optarg, NULL); break;
      case 'c':
        if (!weir_uml_clock_parse(optarg, &config.clock)) return 125;
        break;
      case 'l': config.line = line; break;
      default: return 125;
    }
  config.argv = (const char *const *)argv + optind;
  if (paths) config.paths = config.argv;
  int code;
  const weir_status status = weir_uml_run(&config, &code);
  if (status == WEIR_OK) return code;
  fprintf(stderr, "uml_exec: %s: %s\n", weir_status_name(status), weir_last_error());
  if (status == WEIR_E_STATE) return code;
  return status == WEIR_E_UNSUPPORTED ? 77 : status == WEIR_E_TIMEOUT ? 124 : 125;
}
