// Reads pods from standard input, one JSON object after the other, and prints what the scheduler reckons each of them to
// request: one JSON object a line, thousandths for cpu and whole units for the rest.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var pod corev1.Pod
		if err := decoder.Decode(&pod); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot read a pod: %w", err)
		}
		if err := encoder.Encode(amounts(&pod)); err != nil {
			return fmt.Errorf("cannot write amounts: %w", err)
		}
	}
}

func amounts(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	amounts := map[corev1.ResourceName]int64{}
	for name, quantity := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
		if name == corev1.ResourceCPU {
			amounts[name] = quantity.MilliValue()
		} else {
			amounts[name] = quantity.Value()
		}
	}
	return amounts
}
