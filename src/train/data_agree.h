/* Whether all ranks list the same stores. */
#ifndef TRAIN_DATA_AGREE_H
#define TRAIN_DATA_AGREE_H

#include <lockstep/comm.h>
#include <lockstep/config/inputs.h>

/* Collective. LS_EDATA, on all ranks, names the first file that the list of one rank has otherwise
 * than that of rank 0: by its name within its folder, its tokens, and those of them that count.
 * valid may be NULL. */
int data_agree(const struct ls_training_data *data, const struct ls_token_store *valid,
               struct ls_comm *world, struct ls_error *error);

#endif
