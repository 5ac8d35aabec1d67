/* llm.c's model files: a header of 256 int32, then sixteen arrays, each over all layers. */
#ifndef INTEROP_LLMC_LAYOUT_H
#define INTEROP_LLMC_LAYOUT_H

#include "interop/interop_private.h"

enum {
    LLMC_MAGIC = 20240326,
    LLMC_VERSION_F32 = 3,
    LLMC_VERSION_BF16 = 5,
    LLMC_HEADER_INTS = 256,
    LLMC_ARRAYS = 16,
    LLMC_VOCAB_MULTIPLE = 128, /* of the rows of its table */
};
/* The header's integers behind magic and version. */
enum llmc_field {
    LLMC_CONTEXT = 2,
    LLMC_VOCAB,
    LLMC_LAYERS,
    LLMC_HEADS,
    LLMC_CHANNELS,
    LLMC_VOCAB_PADDED,
    LLMC_FIELDS
};
/* An array: its tensors' names in Hugging Face's GPT-2, with the layer's "h.%d." before them if it
 * is over layers; matrices are [rows, cols] here and there [cols, rows]. Sizes are `times`
 * channels, or a field of the header. */
struct llmc_array {
    const char *name;
    bool layers;
    int times, field; /* of rows; field 0: none */
    int cols;         /* in channels; 0: a vector */
};
extern const struct llmc_array llmc_arrays[LLMC_ARRAYS];
/* Elements of one of its tensors. */
int64_t llmc_elements(const struct llmc_array *array, const int32_t *header);

#endif
