package template

import "testing"

func TestNearestNamesWhatWasProbablyMeant(t *testing.T) {
	known := []string{"SKU", "WarehouseID", "Quantity"}
	for name, want := range map[string]string{
		"sku":          "SKU",
		"SKV":          "SKU",
		"warehouse_id": "WarehouseID",
		"Quantty":      "Quantity",
		"Customer":     "",
		"":             "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
	if got := Nearest("a", nil); got != "" {
		t.Errorf("Nearest of nothing is %q", got)
	}
}
