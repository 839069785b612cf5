/* What a training prints when it is over. */
#include <stdio.h>
#include <weir/weir.h>

#include "cli.h"
#include "lab/report_data.h"

int cli_summary(const char *command, const char *out, gboolean json) {
  if (json) return cli_print_file(command, out, "summary.json");
  weir_report_data data = {0};
  if (weir_report_summary_read(&data, out)) {
    fprintf(stderr, "%s: %s\n", command, weir_last_error());
    weir_report_data_free(&data);
    return WEIR_EXIT_FAILED;
  }
  const weir_report_summary *s = &data.summary;
  printf(
      "network %s, policy %s, %.0f worker%s: accuracy %.2f %% after %.1f s, %.1f s of them on the "
      "wire\n",
      s->network, s->policy, s->workers, s->workers > 1 ? "s" : "", 100 * s->final_accuracy,
      s->elapsed_s, s->comm_s);
  printf("%.0f steps; changes of plan: %.0f; sent by rank 0: %.1f MB; the workers' weights %s\n",
         s->steps, s->switches, s->wire_bytes / 1e6, s->digests_equal ? "are alike" : "DIFFER");
  if (s->trials_s > 0)
    printf("trials took %.1f s, %.1f %% of the time\n", s->trials_s, 100 * s->trial_share);
  printf("results in %s; report: %s/report.html\n", out, out);
  weir_report_data_free(&data);
  return WEIR_EXIT_DONE;
}
