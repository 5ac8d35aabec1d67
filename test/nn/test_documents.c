/* Documents packed in a sequence: each is computed as if it were alone, in every family, and the
 * bits are those of one rank in every cut and with recomputation. */
#include "../support/extent.h"
#include "../support/suite.h"
#include "cut.h"
#include "tiny.h"

#include <math.h>
#include <string.h>

enum { DOCUMENTS = 3, LENGTH = LS_ATTENTION_BLOCK, TOKENS = DOCUMENTS * LENGTH };

/* ---- each as if it were alone ---------------------------------------------------------------- */

/* How the documents are given to the model. */
enum form { PACKED, ALONE, ONE_LONG };

struct packing {
    struct tiny tiny;
    unsigned char recompute[3];
    struct ls_micro_batch batch;
    int32_t ids[TOKENS], targets[TOKENS], starts[TOKENS];
};

static void packing_open(struct packing *p, enum ls_arch arch, enum form form, bool again)
{
    *p = (struct packing){.tiny = tiny_of(arch)};
    p->tiny.config.context = TOKENS;
    for (int i = 0; i < TOKENS; i++) {
        p->ids[i] = (i * 5 + i / 3) % TINY_VOCAB;
        p->targets[i] = i % 7 ? (i * 8 + 1) % TINY_VOCAB : -1;
        p->starts[i] = i / LENGTH * LENGTH;
    }
    p->batch = (struct ls_micro_batch){.sequences = form == ALONE ? DOCUMENTS : 1,
                                       .tokens = form == ALONE ? LENGTH : TOKENS,
                                       .ids = p->ids,
                                       .targets = p->targets,
                                       .starts = form == PACKED ? p->starts : NULL,
                                       .training = true,
                                       .gradient_scale = 1.0f / TOKENS};
    memset(p->recompute, again ? LS_RECOMPUTE_FULL : LS_RECOMPUTE_NONE, sizeof p->recompute);
    tiny_open(&p->tiny, 2);
    tiny_model(&p->tiny, (struct ls_model_options){.sequences = p->batch.sequences,
                                                   .tokens = p->batch.tokens,
                                                   .slots = 1,
                                                   .training = true,
                                                   .documents = true,
                                                   .recompute = p->recompute});
}

static void must(int status, const struct ls_error *error)
{
    if (status)
        fail_msg("%s", error->text);
}

/* Forward and backward; what was given up is made again first. */
static void packing_run(struct packing *p)
{
    struct tiny *t = &p->tiny;
    struct ls_error error = {0};
    const int layers = ls_model_layers(t->model);
    held_forward(&t->held, t->model, &t->ops, 0, layers, &p->batch, LS_ONTO_NOTHING);
    for (int layer = layers - 1; layer >= 0; layer--) {
        struct ls_gradient target = held_target(&t->held, layer, false, LS_ONTO_NOTHING);
        for (int l = ls_layer_again_first(t->model, layer); l <= layer; l++)
            must(ls_layer_forward_again(t->model, &t->ops, l, &p->batch, &error), &error);
        must(ls_layer_backward_input(t->model, &t->ops, layer, &p->batch, &error), &error);
        must(ls_layer_backward_weight(t->model, &t->ops, layer, &p->batch, &target, &error),
             &error);
    }
}

static bool same_losses(const struct packing *a, const struct packing *b)
{
    return !memcmp(ls_model_row_losses(a->tiny.model), ls_model_row_losses(b->tiny.model),
                   TOKENS * sizeof(float));
}

/* Distance of all gradients, as a share of their norm. */
static double gradient_distance(const struct packing *a, const struct packing *b)
{
    double distance = 0, norm = 0;
    for (int64_t i = 0; i < a->tiny.held.gradient_elements; i++) {
        double x = a->tiny.held.gradient[i], y = b->tiny.held.gradient[i];
        distance += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(distance / norm);
}

/* Documents that begin at a block have the losses of sequences, bit for bit. Their gradients are
 * added in another order. */
CASE(test_a_document_is_as_if_alone)
{
    for (int arch = 0; arch < LS_ARCHES; arch++) {
        static struct packing packed, alone, one_long;
        packing_open(&packed, (enum ls_arch)arch, PACKED, false);
        packing_open(&alone, (enum ls_arch)arch, ALONE, false);
        packing_open(&one_long, (enum ls_arch)arch, ONE_LONG, false);
        packing_run(&packed);
        packing_run(&alone);
        packing_run(&one_long);
        if (!same_losses(&packed, &alone))
            fail_msg("%s: a document has other losses than alone",
                     ls_arch_name(packed.tiny.config.arch));
        double distance = gradient_distance(&packed, &alone);
        if (!(distance < 1e-6))
            fail_msg("%s: gradients differ from those of documents alone by %g of their norm",
                     ls_arch_name(packed.tiny.config.arch), distance);
        /* The twin: one document of them all. */
        assert_false(same_losses(&one_long, &alone));
        assert_true(gradient_distance(&one_long, &alone) > 1e-3);
        tiny_close(&packed.tiny);
        tiny_close(&alone.tiny);
        tiny_close(&one_long.tiny);
    }
}

CASE(test_recomputation)
{
    for (int arch = 0; arch < LS_ARCHES; arch++) {
        static struct packing kept, again;
        packing_open(&kept, (enum ls_arch)arch, PACKED, false);
        packing_open(&again, (enum ls_arch)arch, PACKED, true);
        packing_run(&kept);
        packing_run(&again);
        assert_true(same_losses(&kept, &again));
        assert_memory_equal(kept.tiny.held.gradient, again.tiny.held.gradient,
                            (size_t)kept.tiny.held.gradient_elements * sizeof(float));
        tiny_close(&kept.tiny);
        tiny_close(&again.tiny);
    }
}

/* ---- sequences ------------------------------------------------------------------------------- */

enum { SEGMENTED = 4 * LS_ATTENTION_BLOCK };

/* Losses of `count` sequences from sequence `first` on, whose tokens lie in segments. */
static void segmented_losses(int64_t first, int64_t count, float *losses)
{
    static int32_t ids[2 * SEGMENTED], targets[2 * SEGMENTED], starts[2 * SEGMENTED];
    struct tiny tiny = tiny_of(LS_LLAMA);
    for (int i = 0; i < 2 * SEGMENTED; i++) {
        int length = i < SEGMENTED ? 50 : 70;
        ids[i] = (i * 5 + i / 3) % TINY_VOCAB;
        targets[i] = (i * 8 + 1) % TINY_VOCAB;
        starts[i] = i % SEGMENTED / length * length;
    }
    tiny.config.context = SEGMENTED;
    tiny.numerics.seq_tiles = 2;
    const struct ls_micro_batch batch = {.sequences = count,
                                         .tokens = SEGMENTED,
                                         .ids = ids + first * SEGMENTED,
                                         .targets = targets + first * SEGMENTED,
                                         .starts = starts + first * SEGMENTED};
    tiny_open(&tiny, 1);
    tiny_model(&tiny, (struct ls_model_options){
                          .sequences = count, .tokens = SEGMENTED, .slots = 1, .documents = true});
    held_forward(&tiny.held, tiny.model, &tiny.ops, 0, ls_model_layers(tiny.model), &batch,
                 LS_ONTO_NOTHING);
    memcpy(losses, ls_model_losses(tiny.model), (size_t)count * sizeof *losses);
    tiny_close(&tiny);
}

CASE(test_each_sequence_has_its_own)
{
    float both[2], alone[2];
    segmented_losses(0, 2, both);
    segmented_losses(0, 1, &alone[0]);
    segmented_losses(1, 1, &alone[1]);
    assert_memory_equal(both, alone, sizeof both);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

CASE(test_tensor_and_sequence_parallel)
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 6; i++) {
            if (!check_pair(arch, i, 3))
                continue;
            struct cut cut = cut_tensor((enum ls_arch)arch, i);
            cut.documents = true;
            cut_check(cut);
        }
}

/* Ranks index the same array, by position in the whole sequence. */
CASE(test_context_parallel)
{
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; i < 6; i++) {
            if (!check_pair(arch, i, 3))
                continue;
            struct cut cut = cut_context((enum ls_arch)arch, i);
            cut.documents = true;
            cut_check(cut);
            cut.sequences = 2;
            cut.forward = true;
            cut.split = cut.accumulate = false;
            cut_check(cut);
        }
}

SUITE_MAIN(NULL, NULL)
