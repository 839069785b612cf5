# The tests of a build without the lab: unit tests that need nothing of it, by a runner of their own
# that takes Criterion's headers alone.  They run on another processor, too, under its emulator.
foreach(source ${unit_sources})
  file(STRINGS ${source} needs REGEX "^#include (\"(lab/|model_check|trainer_data)|<gio|<glib)")
  if(needs)
    continue()
  endif()
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source} plain_runner.c)
  foreach(folder ${folders} nccl)
    target_include_directories(${name} PRIVATE ${CMAKE_BINARY_DIR}/edges/${folder})
  endforeach()
  target_link_libraries(${name} PRIVATE weir_static weir_flags)
  if(CMAKE_CROSSCOMPILING) # GCC 12.2 for aarch64 fails on loops of some tests, by an error of its own
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -fno-tree-vectorize)
  endif()
  add_test(NAME unit.${name} COMMAND ${name})
  set_tests_properties(unit.${name} PROPERTIES LABELS unit TIMEOUT 600)
endforeach()
set_tests_properties(unit.test_kernels_large PROPERTIES LABELS large)
target_compile_definitions(test_nccl_tuner PRIVATE
                           WEIR_NCCL_TUNER_PLUGIN="$<TARGET_FILE:weir_nccl_tuner>")
add_dependencies(test_nccl_tuner weir_nccl_tuner)
