/* The ratios for which rank 0 reports its gain curve. */
#include "engine/engine.h"

/* The candidates of the paper's controller (0.1 ... 0.001) are among them. */
const double weir_curve_cr[WEIR_CURVE_POINTS] = {0.3,   0.1,   0.033, 0.011,
                                                 0.004, 0.002, 0.001, 0.0003};
