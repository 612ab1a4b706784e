package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	kjson "sigs.k8s.io/json"
)

// newFilterOracleCommand says on which nodes a pod may run, with
// kube-scheduler's own framework and filters. The tests of Octavo's scheduler
// compare with it.
func newFilterOracleCommand() *cobra.Command {
	return &cobra.Command{
		Use:           "filter-oracle",
		Short:         "Answer on which nodes kube-scheduler would let a pod run",
		Long:          "Reads clusters from standard input and answers on standard output, one JSON object a line.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			oracle, err := newFilterOracle(context.Background())
			if err != nil {
				return err
			}
			return oracle.serve(os.Stdin, os.Stdout)
		},
	}
}

// filterQuestion is one line of input: a cluster as the scheduler's informers
// have it, and a pod. Objects are as an API server returns them.
type filterQuestion struct {
	ID         string          `json:"id"`
	Nodes      []*v1.Node      `json:"nodes,omitempty"`
	Namespaces []*v1.Namespace `json:"namespaces,omitempty"`
	// Pods are the pods that have a node and have not ended.
	Pods           []*v1.Pod                   `json:"pods,omitempty"`
	VolumeClaims   []*v1.PersistentVolumeClaim `json:"volumeClaims,omitempty"`
	Volumes        []*v1.PersistentVolume      `json:"volumes,omitempty"`
	StorageClasses []*storagev1.StorageClass   `json:"storageClasses,omitempty"`
	CSINodes       []*storagev1.CSINode        `json:"csiNodes,omitempty"`
	CSIDrivers     []*storagev1.CSIDriver      `json:"csiDrivers,omitempty"`

	CSIStorageCapacities []*storagev1.CSIStorageCapacity `json:"csiStorageCapacities,omitempty"`

	Pod *v1.Pod `json:"pod"`
}

// filterAnswer is one line of output.
type filterAnswer struct {
	ID string `json:"id"`
	// Refused says why no node is possible, if that is known before any node is
	// examined.
	Refused *filterRefusal `json:"refused,omitempty"`
	// Nodes has the refusals of the filters by node. A node without any is
	// feasible.
	Nodes map[string][]filterRefusal `json:"nodes,omitempty"`
	// Scores has the weighted scores of the feasible nodes, by plugin and node.
	// Plugins that skip the pod are left out.
	Scores map[string]map[string]int64 `json:"scores,omitempty"`
}

// scored are the plugins that score by what pods and nodes prefer.
var scored = sets.New(names.TaintToleration, names.NodeAffinity, names.PodTopologySpread, names.InterPodAffinity)

// filterRefusal is a plugin's refusal of a node.
type filterRefusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
	// IsFinal says that the removal of other pods would not change the refusal.
	IsFinal bool `json:"isFinal,omitempty"`
}

// filterOracle is a scheduler's framework over informers that are filled
// directly and never started.
type filterOracle struct {
	framework framework.Framework
	informers informers.SharedInformerFactory
	snapshot  *currentSnapshot
	filters   []string
}

// currentSnapshot is the question's cluster. Plugins keep a pointer to it.
type currentSnapshot struct {
	*internalcache.Snapshot
}

func newFilterOracle(ctx context.Context) (*filterOracle, error) {
	// An API server admits the operators Lt and Gt of tolerations only where this
	// gate is on. Its schedulers then know them.
	gates := map[string]bool{string(features.TaintTolerationComparisonOperators): true}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return nil, fmt.Errorf("turn feature gates on: %w", err)
	}
	// The plugins' log messages about unusual objects are not wanted here.
	klog.SetLogger(klog.Logger{})
	metrics.Register()
	defaults, err := latest.Default()
	if err != nil {
		return nil, fmt.Errorf("take kube-scheduler's default configuration: %w", err)
	}
	profile := &defaults.Profiles[0]
	profile.Plugins.MultiPoint.Enabled = withoutPlugins(profile.Plugins.MultiPoint.Enabled,
		// Compared by the other oracle.
		names.DynamicResources,
		// It would ask the API for victims.
		names.DefaultPreemption)
	factory := informers.NewSharedInformerFactory(nil, 0)
	snapshot := &currentSnapshot{internalcache.NewEmptySnapshot()}
	made, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithLogger(klog.Logger{}),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, fmt.Errorf("make kube-scheduler's framework: %w", err)
	}
	oracle := &filterOracle{framework: made, informers: factory, snapshot: snapshot}
	for _, plugin := range made.ListPlugins().Filter.Enabled {
		oracle.filters = append(oracle.filters, plugin.Name)
	}
	return oracle, nil
}

func withoutPlugins(enabled []config.Plugin, left ...string) []config.Plugin {
	var kept []config.Plugin
	out := sets.New(left...)
	for _, plugin := range enabled {
		if !out.Has(plugin.Name) {
			kept = append(kept, plugin)
		}
	}
	return kept
}

func (o *filterOracle) serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a question: %w", err)
		}
		var asked filterQuestion
		// Strict, so that a field that Kubernetes does not know is reported.
		strict, err := kjson.UnmarshalStrict(line, &asked)
		if err == nil {
			err = errors.Join(strict...)
		}
		if err != nil {
			return fmt.Errorf("question %s: %w", line, err)
		}
		answered, err := o.answer(&asked)
		if err != nil {
			return fmt.Errorf("question %s: %w", asked.ID, err)
		}
		if err := encoder.Encode(answered); err != nil {
			return fmt.Errorf("write the answer to %s: %w", asked.ID, err)
		}
		if err := writer.Flush(); err != nil {
			return fmt.Errorf("write the answer to %s: %w", asked.ID, err)
		}
	}
}

func (o *filterOracle) answer(asked *filterQuestion) (*filterAnswer, error) {
	if err := o.take(asked); err != nil {
		return nil, err
	}
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	state := framework.NewCycleState()
	answered := &filterAnswer{ID: asked.ID, Nodes: map[string][]filterRefusal{}}
	chosen, status, choosers := o.framework.RunPreFilterPlugins(ctx, state, asked.Pod)
	if !status.IsSuccess() {
		refused := refusal(status)
		answered.Refused = &refused
		return answered, nil
	}
	skipped := state.GetSkipFilterPlugins()
	var feasible []fwk.NodeInfo
	for _, node := range asked.Nodes {
		info, err := o.snapshot.NodeInfos().Get(node.Name)
		if err != nil {
			return nil, fmt.Errorf("find node %s: %w", node.Name, err)
		}
		refusals := []filterRefusal{}
		isChosen := chosen.AllNodes() || chosen.NodeNames.Has(node.Name)
		// The framework stops at the first plugin that refuses, so each is called
		// alone.
		for _, filter := range o.filters {
			if skipped.Has(filter) {
				continue
			}
			if !isChosen && choosers.Has(filter) {
				refusals = append(refusals, filterRefusal{Plugin: filter, Reasons: []string{"not chosen"}, IsFinal: true})
				continue
			}
			state.SetSkipFilterPlugins(sets.New(o.filters...).Delete(filter))
			if status := o.framework.RunFilterPlugins(ctx, state, asked.Pod, info); !status.IsSuccess() {
				refusals = append(refusals, refusal(status))
			}
		}
		answered.Nodes[node.Name] = refusals
		if len(refusals) == 0 {
			feasible = append(feasible, info)
		}
	}
	scores, err := o.scores(ctx, state, asked.Pod, feasible)
	answered.Scores = scores
	return answered, err
}

// scores lets the plugins score the feasible nodes.
func (o *filterOracle) scores(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, feasible []fwk.NodeInfo,
) (map[string]map[string]int64, error) {
	if len(feasible) == 0 {
		return nil, nil
	}
	if status := o.framework.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		return nil, fmt.Errorf("prepare the scores: %w", status.AsError())
	}
	all, status := o.framework.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return nil, fmt.Errorf("score the nodes: %w", status.AsError())
	}
	skipped := state.GetSkipScorePlugins()
	scores := map[string]map[string]int64{}
	for _, node := range all {
		for _, one := range node.Scores {
			if !scored.Has(one.Name) || skipped.Has(one.Name) {
				continue
			}
			if scores[one.Name] == nil {
				scores[one.Name] = map[string]int64{}
			}
			scores[one.Name][node.Name] = one.Score
		}
	}
	return scores, nil
}

func refusal(status *fwk.Status) filterRefusal {
	return filterRefusal{
		Plugin:  status.Plugin(),
		Reasons: status.Reasons(),
		IsFinal: status.Code() != fwk.Unschedulable,
	}
}

// take gives the question's objects to the plugins.
func (o *filterOracle) take(asked *filterQuestion) error {
	o.snapshot.Snapshot = internalcache.NewSnapshot(asked.Pods, asked.Nodes)
	core, storage := o.informers.Core().V1(), o.informers.Storage().V1()
	return errors.Join(
		fill(core.Namespaces().Informer(), asked.Namespaces),
		fill(core.PersistentVolumeClaims().Informer(), asked.VolumeClaims),
		fill(core.PersistentVolumes().Informer(), asked.Volumes),
		fill(storage.StorageClasses().Informer(), asked.StorageClasses),
		fill(storage.CSINodes().Informer(), asked.CSINodes),
		fill(storage.CSIDrivers().Informer(), asked.CSIDrivers),
		fill(storage.CSIStorageCapacities().Informer(), asked.CSIStorageCapacities),
	)
}

// fill stores objects where an informer would.
func fill[T any](informer cache.SharedIndexInformer, objects []T) error {
	list := make([]any, 0, len(objects))
	for _, object := range objects {
		list = append(list, object)
	}
	if err := informer.GetIndexer().Replace(list, ""); err != nil {
		return fmt.Errorf("fill an informer: %w", err)
	}
	return nil
}
