/* The values of a tensor of a safetensors file, read whole. */
#ifndef TEST_SUPPORT_TENSOR_DATA_H
#define TEST_SUPPORT_TENSOR_DATA_H

#include <lockstep/ckpt.h>

/* Of a tensor that the file has; valid until the program ends. */
const void *tensor_data(const struct ls_safetensors *file, const char *name);

#endif
