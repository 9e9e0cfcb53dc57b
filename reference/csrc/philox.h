// Philox4x32-10 (Salmon et al. 2011), and the random samples of draws. contracts/philox.py defines the layout
// of key and counter.

#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace verispec {

using Words = std::array<uint32_t, 4>;

enum class Draw : uint32_t { target = 0, draft = 1, accept = 2, inverse = 3 };

inline Words philox4x32(Words c, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = 0xD2511F53ull * c[0];
    const uint64_t product1 = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(product0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// The random samples of one draw, given a request's seed, a position, a step and their purpose.
class Numbers {
 public:
  Numbers(int64_t seed, int64_t pos, int64_t step, Draw draw)
      : key0_(static_cast<uint32_t>(seed)),
        key1_(static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32)),
        tag_(static_cast<uint32_t>(step) << 8 | static_cast<uint32_t>(draw)),
        pos0_(static_cast<uint32_t>(pos)),
        pos1_(static_cast<uint32_t>(static_cast<uint64_t>(pos) >> 32)) {}

  // Return the words of lanes 4 * block to 4 * block + 3.
  Words words(int64_t block) const {
    return philox4x32({static_cast<uint32_t>(block), tag_, pos0_, pos1_}, key0_, key1_);
  }

  // Return the uniform sample of lane 0, exact.
  double uniform() const { return to_uniform(words(0)[0]); }

  static double to_uniform(uint32_t word) { return (word + 0.5) * 0x1p-32; }

  // g = -log(-log(1 - u)).
  static double to_gumbel(uint32_t word) { return -std::log(-std::log1p(-to_uniform(word))); }

 private:
  uint32_t key0_, key1_, tag_, pos0_, pos1_;
};

}  // namespace verispec
