# One target a folder, and only the edges named here.
#
# A folder's headers are included as "folder/file.h".  Each folder has its own include root in the
# build tree, a directory that holds nothing but a link to the folder; it reaches exactly the
# targets that name the folder under LINKS.  An include over an edge that is not declared does not
# compile.
function(weir_folder name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  set(edge ${CMAKE_BINARY_DIR}/edges/${name})
  file(MAKE_DIRECTORY ${edge})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${name} ${edge}/${name} SYMBOLIC)
  add_library(weir_${name} OBJECT ${ARG_SOURCES})
  target_include_directories(weir_${name} PUBLIC ${edge} ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(weir_${name} PRIVATE weir_flags)
  set_target_properties(weir_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON
                                                C_VISIBILITY_PRESET hidden)
  foreach(other ${ARG_LINKS})
    # Headers of the other folder, not what the other folder may itself reach.
    target_include_directories(weir_${name} PUBLIC ${CMAKE_BINARY_DIR}/edges/${other})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY WEIR_FOLDERS ${name})
endfunction()
