/* Has mpirun start ranks, as this same program. */
#include <unistd.h>

#include "collectives.h"

/* --oversubscribe: there may be more ranks than processors. */
gboolean weir_bench_mpirun(contender *c, int ranks, const char *options, const char *option,
                           const char *value) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) {
    (void)g_strlcpy(c->absent, "this program's own path is not known", sizeof c->absent);
    return FALSE;
  }
  self[length] = '\0';
  g_autofree char *command = g_strdup_printf(
      "mpirun --allow-run-as-root --oversubscribe --bind-to none -n %d --mca btl_tcp_if_include "
      "lo%s%s",
      ranks, *options ? " " : "", options);
  g_auto(GStrv) words = g_strsplit(command, " ", -1);
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  for (char **word = words; *word; word++) g_ptr_array_add(argv, *word);
  const char *const rest[] = {self, option, value, NULL};
  for (size_t i = 0; i < G_N_ELEMENTS(rest); i++)
    g_ptr_array_add(argv, (gpointer)(guintptr)rest[i]);
  if (weir_bench_spawn(c, (char **)argv->pdata)) return TRUE;
  (void)g_strlcpy(c->absent, "there is no mpirun (Debian: openmpi-bin)", sizeof c->absent);
  return FALSE;
}
