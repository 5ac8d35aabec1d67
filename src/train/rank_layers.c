/* Which layers a pipeline rank holds. */
#include "train/trainer.h"

#include <stdlib.h>

int part_init(struct train_part *part, const struct ls_layout *layout, int64_t pp_rank,
              struct ls_error *error)
{
    size_t layers = (size_t)layout->model.layers + 2;
    *part = (struct train_part){.chunk_count = (int)layout->chunks,
                                .lowest = ls_model_lowest_trained(&layout->model)};
    part->chunks = calloc((size_t)layout->chunks, sizeof *part->chunks);
    part->held = calloc(layers, sizeof *part->held);
    part->chunk_first = calloc(layers, sizeof *part->chunk_first);
    if (!part->chunks || !part->held || !part->chunk_first) {
        part_release(part);
        return ls_no_memory(error, "for a list of layers");
    }
    ls_layout_layers(layout, pp_rank, part->held, part->chunk_first);
    part->head = part->held[layers - 1];
    for (int i = 0; i < part->chunk_count; i++) {
        int stage = layout->rank_stage[pp_rank * layout->chunks + i];
        part->chunks[i] = (struct train_chunk){.first = layout->stage_first[stage],
                                               .end = layout->stage_first[stage + 1]};
    }
    return LS_OK;
}

void part_release(struct train_part *part)
{
    free(part->chunks);
    free(part->held);
    free(part->chunk_first);
    *part = (struct train_part){0};
}
