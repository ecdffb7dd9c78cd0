"""The kinds that we read and write, all as plain dicts: their fields differ between versions."""

from __future__ import annotations

from lightkube.generic_resource import create_global_resource, create_namespaced_resource

__all__ = [
    "ClusterNotificationChannel",
    "ClusterTrainingPolicy",
    "Event",
    "JobSet",
    "Lease",
    "Namespace",
    "NotificationChannel",
    "Pod",
    "Secret",
    "TrainJob",
    "TrainingPolicy",
    "TrainingRun",
    "Workload",
]

_OURS = ("trainwarden.dev", "v1alpha1")

TrainJob = create_namespaced_resource("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
JobSet = create_namespaced_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
Workload = create_namespaced_resource("kueue.x-k8s.io", "v1beta1", "Workload", "workloads")
Pod = create_namespaced_resource("", "v1", "Pod", "pods")
Secret = create_namespaced_resource("", "v1", "Secret", "secrets")
Namespace = create_global_resource("", "v1", "Namespace", "namespaces")
Event = create_namespaced_resource("", "v1", "Event", "events")
Lease = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
TrainingRun = create_namespaced_resource(*_OURS, "TrainingRun", "trainingruns")
TrainingPolicy = create_namespaced_resource(*_OURS, "TrainingPolicy", "trainingpolicies")
ClusterTrainingPolicy = create_global_resource(*_OURS, "ClusterTrainingPolicy", "clustertrainingpolicies")
NotificationChannel = create_namespaced_resource(*_OURS, "NotificationChannel", "notificationchannels")
ClusterNotificationChannel = create_global_resource(*_OURS, "ClusterNotificationChannel", "clusternotificationchannels")
