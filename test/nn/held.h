/* A part of a model with its values and gradients, for tests: units lie one behind the other, and
 * so do regions. */
#ifndef TEST_NN_HELD_H
#define TEST_NN_HELD_H

#include <lockstep/nn.h>

enum { HELD_UNITS_MAX = 8 };

struct held {
    struct ls_params params;
    struct ls_weights weights[HELD_UNITS_MAX];
    float *values; /* [params.elements] */
    enum ls_dtype act;
    ls_half *compute; /* values rounded to act, NULL where that is LS_F32 */
    float *gradient;
    int64_t gradient_elements;
};
/* part NULL: the whole model. Fails the test where it cannot. */
void held_open(struct held *held, const struct ls_model_config *config,
               const struct ls_numerics *numerics, const struct ls_part *part);
void held_close(struct held *held);
/* Index of a parameter's element (0, 0) in values, or of its gradient. */
int64_t held_place(const struct ls_params *params, const struct ls_param *param);
float *held_values(const struct held *held, const struct ls_param *param);
float *held_gradient(const struct held *held, const struct ls_param *param);
/* The embedding layer's gradient of a tied table, NULL where there is none. */
float *held_table(const struct held *held);
/* Rounds values for the model. */
void held_publish(struct held *held, struct ls_ops *ops);

/* Where layer's backward, or the head's forward, writes its gradient. */
struct ls_gradient held_target(const struct held *held, int layer, bool forward, enum ls_onto onto);
/* Forward of layers [first, end), and their backward, both halves. Fails the test where one
 * fails. */
void held_forward(const struct held *held, struct ls_model *model, struct ls_ops *ops, int first,
                  int end, const struct ls_micro_batch *batch, enum ls_onto onto);
void held_backward(const struct held *held, struct ls_model *model, struct ls_ops *ops, int first,
                   int end, const struct ls_micro_batch *batch, enum ls_onto onto);

#endif
