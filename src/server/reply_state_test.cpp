// How much may wait for a client, without a socket.
#include "server/reply_state.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

class Replies : public testing::Test {
 protected:
  Replies() { reply_.begin(200, {}, {}); }
  std::string take() {  // as a client does that takes all
    const std::string bytes = reply_.next(0).bytes;
    reply_.sent(bytes.size());
    return bytes;
  }
  ReplyState reply_{{}, {}, [] {}, {}};
  const std::string large_ = std::string(Reply::kStreamBytes + 1, 'x');
};

TEST_F(Replies, OneEventMayBeLargerThanWhatMayWait) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(reply_.write(large_));
    EXPECT_FALSE(reply_.gone());
    EXPECT_GT(take().size(), large_.size());
  }
}

TEST_F(Replies, WhoHasNotTakenItIsCutOff) {
  EXPECT_TRUE(reply_.write(large_));
  EXPECT_FALSE(reply_.write("x"));
  EXPECT_TRUE(reply_.gone());
  EXPECT_LT(reply_.pending_bytes(), large_.size() + 1000);
}

TEST_F(Replies, ChunksOfOneMomentGoTogether) {
  EXPECT_TRUE(reply_.write(std::vector<std::string>{"one", "", large_, "two"}));
  const std::string bytes = take();
  EXPECT_NE(bytes.find("\r\n3\r\none\r\n"), bytes.npos) << "each is a chunk";
  EXPECT_TRUE(bytes.ends_with("\r\n3\r\ntwo\r\n"));
  EXPECT_EQ(bytes.find("\r\n0\r\n"), bytes.npos) << "an empty one is none";
}

TEST_F(Replies, TheLastWordsWaitWhateverTheirSize) {
  EXPECT_TRUE(reply_.write(large_));
  reply_.end({large_, "last"});
  EXPECT_FALSE(reply_.gone());
  EXPECT_TRUE(take().ends_with("4\r\nlast\r\n0\r\n\r\n"));
}

}  // namespace
}  // namespace invar::server
