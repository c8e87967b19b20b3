package sandbox

import (
	"encoding/json"
	"fmt"
)

// orders is what Wrap tells Main, as one argument.
type orders struct {
	Parent  int     `json:"parent,omitempty"`  // end when this process is not the parent
	Files   bool    `json:"files,omitempty"`   // restrict files to Zones, and drop privileges
	Zones   []order `json:"zones,omitempty"`   // outer before inner
	Signals bool    `json:"signals,omitempty"` // the signals that were ignored on the way here are not any more
}

type order struct {
	Path   string `json:"p"`
	Access access `json:"a"`
}

func (o orders) encode() (string, error) {
	b, err := json.Marshal(o)
	// The kernel takes 128 KiB for one argument.
	if err == nil && len(b) > 120<<10 {
		err = fmt.Errorf("its %d rules are too many", len(o.Zones))
	}
	return string(b), err
}

func (o orders) zones() zones {
	var z zones
	for _, one := range o.Zones {
		z = append(z, zone{one.Path, one.Access})
	}
	return z
}
