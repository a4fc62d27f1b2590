#include "state/prefix_tree.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/check.h"

namespace invar {

struct PrefixTree::Node {
  Node* parent = nullptr;
  std::vector<Token> edge;  // from the parent to here
  int64_t position = 0;     // tokens from the root to here
  std::map<Token, std::unique_ptr<Node>> children;
  Snapshot snapshot;
  int64_t below = 0;  // snapshots here and further on
  uint64_t used = 0;
  int pins = 0;

  static const int64_t kBytes;
};

// With its place in the parent's map, and what the allocator adds.
constexpr int64_t PrefixTree::Node::kBytes = sizeof(Node) + 64 + 32;

namespace {

int64_t bytes_of(const Snapshot& snapshot) { return int64_t(snapshot.pages.size() * sizeof(PageRef)); }
int64_t bytes_of(const std::vector<Token>& edge) { return int64_t(edge.size() * sizeof(Token)); }

}  // namespace

PrefixTree::PrefixTree(StatePool& pool, int64_t most_bytes)
    : pool_(pool), root_(std::make_unique<Node>()), most_bytes_(most_bytes) {
  use_.nodes = 1;
  use_.bytes = Node::kBytes;
}

PrefixTree::~PrefixTree() {  // without recursion: a path may be very long
  std::vector<std::unique_ptr<Node>> nodes;
  nodes.push_back(std::move(root_));
  while (!nodes.empty()) {
    std::unique_ptr<Node> node = std::move(nodes.back());
    nodes.pop_back();
    for (auto& [token, child] : node->children) nodes.push_back(std::move(child));
  }
}

PrefixTree::Place PrefixTree::follow(std::span<const Token> tokens) const {
  Place place{root_.get(), nullptr, 0};
  while (place.position < tokens.size()) {
    const auto found = place.node->children.find(tokens[place.position]);
    if (found == place.node->children.end()) break;
    Node* child = found->second.get();
    const auto rest = tokens.subspan(place.position);
    const auto [end, unused] =
        std::mismatch(child->edge.begin(), child->edge.end(), rest.begin(), rest.end());
    place.position += size_t(end - child->edge.begin());
    if (end != child->edge.end()) {
      place.inside = child;
      break;
    }
    place.node = child;
  }
  return place;
}

PrefixTree::Match PrefixTree::match(std::span<const Token> tokens) {
  const Place place = follow(tokens);
  Match match{{}, int64_t(place.position)};
  const int64_t most = int64_t(tokens.size()) - 1;
  if (!cuttable()) {
    for (Node* node = place.node; node; node = node->parent)
      if (node->snapshot && node->position <= most) {
        node->used = ++now_;
        match.snapshot = node->snapshot;
        break;
      }
    return match;
  }
  // Any snapshot at or behind a node of the path has the pages up to that node.
  for (Node* node = place.inside ? place.inside : place.node; node; node = node->parent) {
    const int64_t at = std::min({node->position, match.known, most});
    if (node->below == 0 || at <= 0) continue;
    while (!node->snapshot)
      for (auto& [token, child] : node->children)
        if (child->below > 0) {
          node = child.get();
          break;
        }
    node->used = ++now_;
    match.snapshot = node->snapshot.cut(at);
    break;
  }
  return match;
}

bool PrefixTree::has(std::span<const Token> tokens) const {
  const Place place = follow(tokens);
  if (place.position < tokens.size() || tokens.empty()) return false;
  if (cuttable()) return (place.inside ? place.inside : place.node)->below > 0;
  return !place.inside && place.node->snapshot;
}

// The node at the end of a text; made if there is none.
PrefixTree::Node* PrefixTree::reach(std::span<const Token> tokens) {
  Place place = follow(tokens);
  Node* node = place.node;
  if (place.inside) node = split(place.inside, place.position - size_t(node->position));
  if (place.position < tokens.size()) {
    const auto rest = tokens.subspan(place.position);
    auto leaf = std::make_unique<Node>();
    leaf->parent = node;
    leaf->edge.assign(rest.begin(), rest.end());
    leaf->position = int64_t(tokens.size());
    use_.nodes += 1;
    use_.tokens += int64_t(rest.size());
    use_.bytes += Node::kBytes + bytes_of(leaf->edge);
    node = (node->children[rest[0]] = std::move(leaf)).get();
  }
  node->used = ++now_;
  return node;
}

// Puts a node into the edge to `node`, after `at` tokens of it.
PrefixTree::Node* PrefixTree::split(Node* node, size_t at) {
  std::unique_ptr<Node>& place = node->parent->children[node->edge[0]];
  auto middle = std::make_unique<Node>();
  middle->parent = node->parent;
  middle->edge.assign(node->edge.begin(), node->edge.begin() + ptrdiff_t(at));
  middle->position = middle->parent->position + int64_t(at);
  middle->below = node->below;
  middle->used = node->used;
  node->parent = middle.get();
  node->edge.erase(node->edge.begin(), node->edge.begin() + ptrdiff_t(at));
  node->edge.shrink_to_fit();
  middle->children[node->edge[0]] = std::move(place);
  place = std::move(middle);
  use_.nodes += 1;
  use_.bytes += Node::kBytes;
  return place.get();
}

// A node that carries nothing and leads to one other goes into the edge to that one.
void PrefixTree::tidy(Node* node) {
  if (!node->parent || node->snapshot || node->pins > 0 || node->children.size() != 1) return;
  std::unique_ptr<Node> child = std::move(node->children.begin()->second);
  child->edge.insert(child->edge.begin(), node->edge.begin(), node->edge.end());
  child->parent = node->parent;
  use_.nodes -= 1;
  use_.bytes -= Node::kBytes;
  std::unique_ptr<Node>& place = node->parent->children[child->edge[0]];
  place = std::move(child);  // the node is gone
}

void PrefixTree::store(Node* node, Snapshot snapshot) {
  if (node->snapshot) return;
  for (const Node* earlier = node->parent; earlier; earlier = earlier->parent)
    if (earlier->snapshot) {
      const auto full = size_t(earlier->snapshot.position / kPagePositions);
      const auto& pages = earlier->snapshot.pages;
      if (!pages.empty()) std::copy_n(pages.begin(), full, snapshot.pages.begin());
      break;
    }
  node->snapshot = std::move(snapshot);
  use_.snapshots += 1;
  use_.bytes += bytes_of(node->snapshot);
  for (Node* n = node; n; n = n->parent) n->below += 1;
}

void PrefixTree::drop(Node* node) {
  use_.snapshots -= 1;
  use_.bytes -= bytes_of(node->snapshot);
  node->snapshot = {};
  for (Node* n = node; n; n = n->parent) n->below -= 1;
}

// Cuts a snapshot from its end until so many bytes are free, or nothing is left.
void PrefixTree::trim(Node* node, int64_t bytes) {
  bytes = std::min(bytes, node->snapshot.own_bytes(pool_));
  const Snapshot whole = node->snapshot;
  drop(node);
  auto last = whole.pages.size();
  for (; last > 0 && bytes > 0; --last)
    if (!whole.pages[last - 1].shared()) bytes -= pool_.page_bytes();
  const int64_t position = std::min(whole.position, int64_t(last) * kPagePositions);
  Node* first = node;  // of those at the position or behind it
  while (first->parent && first->parent->position >= position) first = first->parent;
  if (position == 0 || first->below > 0) return tidy(node);  // another serves up to there
  if (first->position > position) first = split(first, size_t(position - first->parent->position));
  store(first, whole.cut(position));
  if (first != node) tidy(node);
}

void PrefixTree::remove(Node* leaf) {
  if (leaf->snapshot) drop(leaf);
  use_.nodes -= 1;
  use_.tokens -= int64_t(leaf->edge.size());
  use_.bytes -= Node::kBytes + bytes_of(leaf->edge);
  Node* parent = leaf->parent;
  parent->children.erase(leaf->edge[0]);
  tidy(parent);
}

void PrefixTree::learn(std::span<const Token> tokens) {
  if (follow(tokens).position == tokens.size()) return;
  reach(tokens);
  forget();
}

void PrefixTree::insert(std::span<const Token> tokens, Snapshot snapshot) {
  CHECK(int64_t(tokens.size()) == snapshot.position && snapshot);
  if (cuttable() && has(tokens)) return;
  Node* node = reach(tokens);
  store(node, std::move(snapshot));
  if (cuttable())  // the earlier ones serve no more
    for (Node *n = node->parent, *next; n; n = next) {
      next = n->parent;
      if (!n->snapshot || n->pins > 0) continue;
      drop(n);
      tidy(n);
    }
  forget();
}

// Bookkeeping within its bound: first to go are texts without a snapshot, then the oldest.
void PrefixTree::forget() {
  if (use_.bytes <= most_bytes_) return;
  const int64_t target = most_bytes_ / 8 * 7;
  bool more = true;
  while (more && use_.bytes > target) {
    std::vector<std::tuple<bool, uint64_t, Node*>> leaves;
    std::vector<Node*> nodes{root_.get()};
    while (!nodes.empty()) {
      Node* node = nodes.back();
      nodes.pop_back();
      for (auto& [token, child] : node->children) nodes.push_back(child.get());
      if (node->children.empty() && node->parent && node->pins == 0)
        leaves.emplace_back(bool(node->snapshot), node->used, node);
    }
    std::sort(leaves.begin(), leaves.end());
    for (auto& [carries, used, leaf] : leaves)
      if (use_.bytes > target) remove(leaf);
    more = !leaves.empty();
  }
}

// How much is lost with it: the lower, the earlier it goes.
double PrefixTree::worth(const Node& node, int64_t bytes) const {
  const double age = double(now_ - node.used + 1);
  if (cuttable()) return 1 / age;  // all have the same tokens in a byte
  const Node* earlier = node.parent;
  while (earlier && !earlier->snapshot) earlier = earlier->parent;
  constexpr double kBetween = 1.0 / 8;  // how often such a one is the longest that serves, about
  const auto further = std::count_if(node.children.begin(), node.children.end(),
                                     [](auto& child) { return child.second->below > 0; });
  const auto tokens = double(node.position - (earlier ? earlier->position : 0));
  return (further == 1 ? kBetween : 1) * tokens / double(bytes) / age;
}

// One walk over all candidates, the least worth first; false: nothing was freed.  A walk does not see that
// what it dropped made others freeable: the next one does.
bool PrefixTree::evict_some(int64_t target) {
  using Candidate = std::pair<double, Node*>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  std::vector<Node*> nodes{root_.get()};
  while (!nodes.empty()) {
    Node* node = nodes.back();
    nodes.pop_back();
    for (auto& [token, child] : node->children)
      if (child->below > 0) nodes.push_back(child.get());
    if (!node->snapshot || node->pins > 0) continue;
    if (const int64_t bytes = node->snapshot.own_bytes(pool_)) candidates.emplace(worth(*node, bytes), node);
  }
  const int64_t before = pool_.used_bytes();
  while (!candidates.empty() && pool_.used_bytes() > target) {
    const auto [stored, node] = candidates.top();
    candidates.pop();
    const double now = worth(*node, node->snapshot.own_bytes(pool_));
    if (now > stored) {  // its neighbour went
      candidates.emplace(now, node);
      continue;
    }
    if (cuttable()) {
      trim(node, pool_.used_bytes() - target);
      continue;
    }
    drop(node);
    tidy(node);
  }
  return pool_.used_bytes() < before;
}

int64_t PrefixTree::evict(int64_t bytes) {
  const int64_t before = pool_.used_bytes(), target = before - bytes;
  while (pool_.used_bytes() > target && evict_some(target)) {}
  return before - pool_.used_bytes();
}

void PrefixTree::pin(const std::string& name, std::span<const Token> tokens, Snapshot snapshot) {
  CHECK(int64_t(tokens.size()) == snapshot.position && snapshot);
  Node* node = reach(tokens);
  node->pins += 1;  // before unpin, which may drop what is equal
  store(node, std::move(snapshot));
  unpin(name);
  pins_[name] = node;
  forget();
}

bool PrefixTree::unpin(const std::string& name) {
  const auto found = pins_.find(name);
  if (found == pins_.end()) return false;
  Node* node = found->second;
  pins_.erase(found);
  node->pins -= 1;
  if (cuttable() && node->pins == 0 && node->below > 1) {
    drop(node);
    tidy(node);
  }
  return true;
}

std::optional<PrefixTree::Pin> PrefixTree::pinned(const std::string& name) const {
  const auto found = pins_.find(name);
  if (found == pins_.end()) return std::nullopt;
  Pin pin{name, std::vector<Token>(size_t(found->second->position)), found->second->snapshot};
  for (const Node* node = found->second; node->parent; node = node->parent)
    std::copy(node->edge.begin(), node->edge.end(), pin.tokens.begin() + node->parent->position);
  return pin;
}

std::vector<std::string> PrefixTree::pins() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : pins_) names.push_back(name);
  return names;
}

PrefixTree::Use PrefixTree::use() const { return use_; }

}  // namespace invar
