"""The parties that only pretend: kubelets, controllers, nodes by the dozen."""
