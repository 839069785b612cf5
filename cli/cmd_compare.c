int weir_cmd_compare(int argc, char **argv);
#include <stdio.h>
int weir_cmd_compare(int argc, char **argv) { (void)argc;(void)argv; puts("x"); return 1; }
