/* The convolutional net against its definition in double. */
#include "model_check.h"
#include "trainer_data.h"

enum { STAGES = 3, CHANNELS = 2 };

typedef struct maps {
  size_t side, channels;
  double at[28 * 28 * 8]; /* pixel by pixel, of each its channels */
} maps;

/* 3 x 3, stride 2, as if a frame of zeros lay around the image. */
static void convolve(const double *w, const double *b, const maps *in, maps *out) {
  for (size_t y = 0; y < out->side; y++)
    for (size_t x = 0; x < out->side; x++)
      for (size_t o = 0; o < out->channels; o++) {
        double sum = b[o];
        for (int k = 0; k < 9; k++) {
          const long row = 2 * (long)y - 1 + k / 3, column = 2 * (long)x - 1 + k % 3;
          if (row < 0 || column < 0 || row >= (long)in->side || column >= (long)in->side) continue;
          for (size_t c = 0; c < in->channels; c++)
            sum += w[(o * 9 + (size_t)k) * in->channels + c] *
                   in->at[((size_t)row * in->side + (size_t)column) * in->channels + c];
        }
        out->at[(y * out->side + x) * out->channels + o] = sum;
      }
}

static void norm_relu(const double *w, const double *b, maps *x) {
  const size_t count = x->side * x->side * x->channels;
  double mean = 0, variance = 0;
  for (size_t i = 0; i < count; i++) mean += x->at[i] / (double)count;
  for (size_t i = 0; i < count; i++)
    variance += (x->at[i] - mean) * (x->at[i] - mean) / (double)count;
  for (size_t i = 0; i < count; i++) {
    const size_t c = i % x->channels;
    x->at[i] = fmax(0, (x->at[i] - mean) / sqrt(variance + 1e-5) * w[c] + b[c]);
  }
}

static const double *find(const weir_model *m, const double *p, const char *layer, size_t number,
                          const char *part) {
  char name[32];
  (void)snprintf(name, sizeof name, "%s%zu.%s", layer, number, part);
  return p + tensor_at(m, name);
}

static double definition_of_cnn(const weir_model *m, const weir_batch *batch, const double *p) {
  static maps in, out;
  double total = 0;
  for (size_t s = 0; s < batch->count; s++) {
    const uint8_t *image = m->data->train_images + batch->sample[s] * 784;
    in = (maps){.side = 28, .channels = 1};
    for (size_t i = 0; i < 784; i++) in.at[i] = (image[i] / 255.0 - 0.2860) / 0.3530;
    for (size_t l = 1; l <= STAGES; l++) {
      out = (maps){.side = (in.side + 1) / 2, .channels = (size_t)CHANNELS << (l - 1)};
      convolve(find(m, p, "conv", l, "weight"), find(m, p, "conv", l, "bias"), &in, &out);
      norm_relu(find(m, p, "norm", l, "weight"), find(m, p, "norm", l, "bias"), &out);
      in = out;
    }
    double logit[10];
    const double *w = p + tensor_at(m, "fc.weight"), *b = p + tensor_at(m, "fc.bias");
    const size_t inputs = in.side * in.side * in.channels;
    for (size_t o = 0; o < 10; o++) {
      logit[o] = b[o];
      for (size_t i = 0; i < inputs; i++) logit[o] += w[o * inputs + i] * in.at[i];
    }
    total += cross_entropy(logit, 10, m->data->train_labels[batch->sample[s]]);
  }
  return total / (double)batch->count;
}

/* 4 x 4 x 8 inputs of the last map. */
Test(models_cnn, loss_and_gradient_are_those_of_the_definition) {
  weir_dataset data = synthetic();
  weir_rng rng = weir_rng_of(6);
  for (size_t i = 0; i < IMAGES * 784; i++) data.train_images[i] = (uint8_t)weir_rng_next(&rng);
  weir_model m;
  const weir_model_config config = {.name = "cnn", .sizes = {.channels = CHANNELS}, .samples = 2};
  cr_assert_eq(weir_model_create(&m, &config, &data), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(m.parameters, 2 * (9 + 1) + 4 * (18 + 1) + 8 * (36 + 1) + 2 * (2 + 4 + 8) + 1290);
  m.kind->init(&m, 2);
  stir(&m, 3, 0.05);
  const uint32_t images[2] = {5, 40};
  check_gradient(&m, &(weir_batch){.sample = images, .count = 2}, definition_of_cnn, 1, 2e-5);
  weir_model_free(&m);
  weir_dataset_free(&data);
}
