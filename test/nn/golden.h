/* Golden files of tools/golden_model.py (Hugging Face names and layouts) as our parameters. */
#ifndef TEST_NN_GOLDEN_H
#define TEST_NN_GOLDEN_H

#include <lockstep/ckpt.h>
#include <lockstep/nn.h>

/* The file under test/golden, found from the repository's root or from $LS_TEST_DIR. */
struct ls_safetensors *golden_open(const char *name);
/* The model of which the file's "keys" speak, such as "arch=llama layers=2". */
struct ls_model_config golden_config(const struct ls_safetensors *file);
const void *golden_data(const struct ls_safetensors *file, const char *name);
/* values (laid out as held_place says) = the file's "<prefix><HF name>" tensors, in our names and
 * layouts. block_only: the file holds one block's tensors without "h.0." */
void golden_gather(const struct ls_safetensors *file, const char *prefix,
                   const struct ls_model_config *config, const struct ls_params *params,
                   bool block_only, float *values);
/* |a - b| / |b| over count values. */
double golden_distance(const float *a, const float *b, int64_t count);

#endif
