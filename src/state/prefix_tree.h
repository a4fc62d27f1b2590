// The longest prefix that a state can start from, over all texts seen.  A compressed radix tree over tokens;
// a node may carry the snapshot of the position where it ends.  Decides what to forget when room is wanted;
// when snapshots are taken is the engine's business, files are disk_store.h's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/operands.h"
#include "state/state.h"

namespace invar {

class PrefixTree {
 public:
  // Keeps texts and lists of pages in at most `most_bytes`, pinned ones aside.  The pool outlives it.
  PrefixTree(StatePool& pool, int64_t most_bytes);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  struct Match {
    Snapshot
        snapshot;  // of a prefix shorter than the tokens: one row remains for its logits; position 0: none
    int64_t known = 0;  // tokens that follow a known path, all of them at most
  };
  Match match(std::span<const Token> tokens);

  bool has(std::span<const Token> tokens) const;  // a state after exactly this text
  void learn(std::span<const Token> tokens);      // the text becomes known; no snapshot
  // One token for each position of the snapshot.  A state that is there already stays.  By the numbers
  // contract the same text has the same bits, so pages that an earlier snapshot on the path has are shared
  // with it.
  void insert(std::span<const Token> tokens, Snapshot snapshot);

  // Drops snapshots until at least so many bytes of the pool are free again, or none is left that would free
  // any.  Pinned ones stay.  Returns the bytes freed.  First to go is what is least worth its room: tokens to
  // read again without it, by bytes freed, by time since its last use; and less worth is what only lies on
  // the way to a longer one.  Without fixed states a snapshot is cut from its end, by no more than is wanted.
  int64_t evict(int64_t bytes);

  // Saved states: kept whatever happens, until unpinned.  The same name again replaces.
  struct Pin {
    std::string name;
    std::vector<Token> tokens;
    Snapshot snapshot;
  };
  void pin(const std::string& name, std::span<const Token> tokens, Snapshot snapshot);
  bool unpin(const std::string& name);  // false: no such name
  std::optional<Pin> pinned(const std::string& name) const;
  std::vector<std::string> pins() const;  // names, sorted

  struct Use {
    int64_t snapshots = 0, nodes = 0, tokens = 0;
    int64_t bytes = 0;  // of the tree itself, about
  };
  Use use() const;

 private:
  struct Node;
  struct Place {      // where a text leads
    Node* node;       // the last one reached
    Node* inside;     // the text ends inside the edge to this one, or null
    size_t position;  // tokens that were followed
  };

  bool cuttable() const { return pool_.set_bytes() == 0; }  // a snapshot serves all earlier positions too
  Place follow(std::span<const Token> tokens) const;
  Node* reach(std::span<const Token> tokens);
  Node* split(Node* node, size_t at);
  void store(Node* node, Snapshot snapshot);
  void drop(Node* node);
  void trim(Node* node, int64_t bytes);
  void tidy(Node* node);
  void remove(Node* leaf);
  void forget();
  bool evict_some(int64_t target);
  double worth(const Node& node, int64_t bytes) const;

  StatePool& pool_;
  std::unique_ptr<Node> root_;
  std::map<std::string, Node*> pins_;
  int64_t most_bytes_;
  Use use_;
  uint64_t now_ = 0;  // counts uses
};

}  // namespace invar
