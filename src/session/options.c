/* What an order says: options and arrays, checked. */
#include "session/session_private.h"

#include <math.h>
#include <string.h>

static const json_t *given(const struct order *order, const char *name)
{
    const json_t *value = json_object_get(order->options, name);
    return json_is_null(value) ? NULL : value;
}

int option_int(const struct order *order, const char *name, int64_t least, int64_t most,
               int64_t *value, struct ls_error *error)
{
    const json_t *option = given(order, name);
    if (!option)
        return LS_OK;
    if (!json_is_integer(option) || json_integer_value(option) < least ||
        json_integer_value(option) > most)
        return ls_error_set(error, LS_EINVAL, "%s: %s: expected a whole number from %lld to %lld",
                            order->verb->name, name, (long long)least, (long long)most);
    *value = json_integer_value(option);
    return LS_OK;
}

int option_real(const struct order *order, const char *name, double *value, struct ls_error *error)
{
    const json_t *option = given(order, name);
    if (!option)
        return LS_OK;
    if (!json_is_number(option))
        return ls_error_set(error, LS_EINVAL, "%s: %s: expected a number", order->verb->name, name);
    *value = json_number_value(option);
    return LS_OK;
}

int option_temperature(const struct order *order, double *value, struct ls_error *error)
{
    int status = option_real(order, "temperature", value, error);
    if (!status && !((float)*value > 0 && isfinite((float)*value)))
        status = ls_error_set(error, LS_EINVAL, "%s: temperature: expected a number above 0",
                              order->verb->name);
    return status;
}

int option_bool(const struct order *order, const char *name, bool *value, struct ls_error *error)
{
    const json_t *option = given(order, name);
    if (!option)
        return LS_OK;
    if (!json_is_boolean(option))
        return ls_error_set(error, LS_EINVAL, "%s: %s: expected true or false", order->verb->name,
                            name);
    *value = json_is_true(option);
    return LS_OK;
}

int option_text(const struct order *order, const char *name, const char **value,
                struct ls_error *error)
{
    const json_t *option = given(order, name);
    if (!option)
        return LS_OK;
    if (!json_is_string(option) || strlen(json_string_value(option)) != json_string_length(option))
        return ls_error_set(error, LS_EINVAL, "%s: %s: expected a text", order->verb->name, name);
    *value = json_string_value(option);
    return LS_OK;
}

int option_of_type(const struct order *order, const char *name, json_type type,
                   const json_t **value, struct ls_error *error)
{
    *value = given(order, name);
    if (!*value || json_typeof(*value) == type)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "%s: %s: expected %s", order->verb->name, name,
                        type == JSON_ARRAY ? "a list" : "an object");
}

const struct ls_array *order_array(const struct order *order, const char *name)
{
    for (int i = 0; i < order->array_count; i++)
        if (!strcmp(order->arrays[i].name, name))
            return &order->arrays[i];
    return NULL;
}

int order_array_check(const struct order *order, const char *name, const char *dtype, int dims,
                      struct ls_error *error)
{
    const struct ls_array *array = order_array(order, name);
    if (!array)
        return LS_OK;
    bool sized = array->dims == dims;
    for (int i = 0; i < array->dims && sized; i++)
        sized = array->shape[i] >= 0;
    if (sized && !strcmp(array->dtype, dtype) && array->data)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "%s: %s: expected an array of %s with %d dimension%s",
                        order->verb->name, name, dtype, dims, dims == 1 ? "" : "s");
}
