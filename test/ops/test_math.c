/* The elementary functions of kern/math.h against the library's in double, over their whole domain.
 */
#include "../support/suite.h"
#include "ops/kern/math.h"

#include <math.h>
#include <stdio.h>

/* |got - want| in units of the last place of want as a float. */
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

static void check(const char *name, float (*f)(float), double (*reference)(double), float from,
                  float to, int points, double ulps_max)
{
    double worst = 0, worst_x = 0;
    for (int i = 0; i <= points; i++) {
        float x = (float)(from + (to - from) * (double)i / points);
        double error = ulps(f(x), reference(x));
        if (!(error <= worst)) {
            worst = error;
            worst_x = x;
        }
    }
    printf("%s on [%g, %g]: %.2f ulp at %.9g\n", name, (double)from, (double)to, worst, worst_x);
    if (!(worst <= ulps_max))
        fail_msg("%s(%.9g): %.9g, reference %.9g", name, worst_x, (double)f((float)worst_x),
                 reference(worst_x));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double normal_cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}
static double normal_density(double x)
{
    return exp(-x * x / 2) / sqrt(2 * acos(-1));
}

CASE(test_errors_are_as_documented)
{
    check("exp2, clamped", math_exp2_clamped, exp2, -125, 125, 1000000, 1.1);
    check("exp, nonpositive", math_exp_nonpositive, exp, -87, 0, 1000000, 1.1);
    check("sigmoid", math_sigmoid, sigmoid, -2, 20, 500000, 4);
    check("sigmoid", math_sigmoid, sigmoid, -17, -2, 500000, 17);
    check("tanh", math_tanh, tanh, -12, 12, 1000000, 3);
    check("tanh", math_tanh, tanh, -1e-3f, 1e-3f, 100000, 1);
    check("normal_cdf", math_normal_cdf, normal_cdf, -2, 10, 500000, 9);
    check("normal_cdf", math_normal_cdf, normal_cdf, -12, -2, 500000, 80);
    check("normal_density", math_normal_density, normal_density, -2, 2, 500000, 6);
    check("log", math_log, log, 1e-30f, 1e-20f, 100000, 0.51);
    check("log", math_log, log, 0.5f, 2, 500000, 0.51);
    check("log", math_log, log, 2, 1e6f, 500000, 0.51);
}

CASE(test_special_values)
{
    float subnormal = 0x1p-149f;
    assert_true(math_exp_nonpositive(-INFINITY) == 0.0f && math_exp_nonpositive(-87.1f) == 0.0f);
    assert_true(math_exp_nonpositive(0.0f) == 1.0f && isnan(math_exp_nonpositive(NAN)));
    assert_true(math_sigmoid(INFINITY) == 1.0f && math_sigmoid(-INFINITY) == 0x1p-125f);
    assert_true(math_tanh(INFINITY) == 1.0f && math_tanh(-INFINITY) == -1.0f);
    assert_true(isnan(math_tanh(NAN)) && math_tanh(0.0f) == 0.0f);
    assert_true(isnan(math_sigmoid(NAN)) && isnan(math_normal_cdf(NAN)));
    assert_true(ulps(math_normal_cdf(0.0f), 0.5) < 3);
    assert_true(math_normal_cdf(30.0f) == 1.0f && math_normal_cdf(-30.0f) == 0.0f);
    assert_true(math_log(1.0f) == 0.0f && math_log(0.0f) == -INFINITY);
    assert_true(isinf(math_log(INFINITY)) && isnan(math_log(NAN)));
    assert_true(ulps(math_log(subnormal), log((double)subnormal)) < 0.51);
}

SUITE_MAIN(NULL, NULL)
