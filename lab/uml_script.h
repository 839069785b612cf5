/* The folder and the init script of one User-Mode Linux run.  Used by lab/uml.c only. */
#ifndef WEIR_LAB_UML_SCRIPT_H
#define WEIR_LAB_UML_SCRIPT_H

#include "lab/uml.h"

enum { WEIR_UML_PATH = 1024 };

typedef struct weir_uml_folder {
  char path[256]; /* .../weir-uml-XXXXXX */
  int lock;       /* held while the run lives, so that a later one knows what a crash left */
} weir_uml_folder;

/* Absolute path of a program in PATH; WEIR_E_UNSUPPORTED when it is not there. */
weir_status weir_uml_find_program(const char *name, char path[WEIR_UML_PATH]);
/* Make the folder (after removing what crashed runs left) and remove it again. */
weir_status weir_uml_folder_make(weir_uml_folder *folder);
void weir_uml_folder_remove(weir_uml_folder *folder);
/* Write the init script FOLDER/init.  keep_terminal: the command may see a terminal. */
weir_status weir_uml_write_init(const weir_uml_folder *folder, const weir_uml_config *config,
                                bool keep_terminal);
/* The command's exit code from FOLDER/exit; -1 when it left none. */
int weir_uml_read_exit(const weir_uml_folder *folder);

#endif
