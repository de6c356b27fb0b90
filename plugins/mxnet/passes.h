/* The two passes of MXNet that the plugin wraps, and what it remembers about them. */
#ifndef MEMONGER_MXNET_PASSES_H_
#define MEMONGER_MXNET_PASSES_H_

#include <nnvm/graph.h>
#include <nnvm/pass.h>

#include <string>

namespace memonger {

struct Switches {
  bool recompute = false;  // clones as the plan says, instead of stock mirroring
  bool storage = false;    // the best assignment of storage ids, instead of MXNet's
};

// Empty when the passes can be wrapped; else why not: they are missing, or another copy of the
// plugin has wrapped them. Changes nothing.
std::string WhyNotInstall();

// Replaces the bodies of MXGradient and MXPlanMemory by ours, which do what the originals do
// until a switch is on. Once in a process, after WhyNotInstall() found nothing.
void InstallPasses();

// Switches hold for all binds that follow, in every thread.
void SetSwitches(const Switches& switches);
Switches GetSwitches();

// MXPlanMemory; with `improve` better storage ids, or an arena where the network asks for one
// (memory_pass.cc). `plan` is the original body.
nnvm::Graph PlanMemory(nnvm::Graph graph, const nnvm::PassFunction& plan, bool improve);

}  // namespace memonger

#endif  // MEMONGER_MXNET_PASSES_H_
